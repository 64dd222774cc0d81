"""Aggregating operators: over rows of scans in windows, over changing rows, and with user-defined aggregates."""
