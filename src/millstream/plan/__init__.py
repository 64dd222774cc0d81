"""HOW: from a flow (what) to a plan of stages (how). Pure values in, pure values out; runs nothing."""
