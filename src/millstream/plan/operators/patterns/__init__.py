"""The operator of patterns, and its terms."""
