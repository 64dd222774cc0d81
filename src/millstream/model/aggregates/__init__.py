"""Aggregate functions: exact, approximate, and statistics of the distribution of values."""
