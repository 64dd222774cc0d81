"""Aggregates as partials: how rows become partials, how partials combine, and what they answer."""
