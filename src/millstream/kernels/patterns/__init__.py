"""The kernel of patterns: the compiled pattern, the search, and the values of a match."""
