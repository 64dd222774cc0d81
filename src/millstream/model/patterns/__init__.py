"""Row patterns: the builder, the pattern tree, and conditions that refer to other rows."""
