"""Statements that change the rows of stored tables."""
