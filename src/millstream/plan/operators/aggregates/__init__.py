"""Operators that aggregate: rows of scans in windows, rows that change, and with user-defined aggregates."""
