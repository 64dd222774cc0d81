"""EXPLAIN: renders a plan as a tree of facts."""
