"""The operator of patterns."""
