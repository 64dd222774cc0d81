"""Patterns over rows: the builder, the tree it makes, and the conditions that refer to other rows."""
