"""Subqueries in expressions, correlated or not, as joins."""
