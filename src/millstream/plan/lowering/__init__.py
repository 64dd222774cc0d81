"""From the steps of a flow to scans, feeds and operators."""
