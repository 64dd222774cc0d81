"""EXPLAIN: a plan as a tree of facts."""
