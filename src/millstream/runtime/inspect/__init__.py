"""Inspection of flows: status, lag, accounting, the state of processes."""
