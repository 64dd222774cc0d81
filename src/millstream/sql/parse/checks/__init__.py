"""Checks of statements: what is allowed, what would be ignored, and what is wrong with a text that is not SQL."""
