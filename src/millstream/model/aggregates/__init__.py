"""Aggregate functions: exact ones, approximate ones, and those over the distribution of values."""
