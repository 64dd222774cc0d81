"""Converts subqueries in expressions, correlated or not, to joins."""
