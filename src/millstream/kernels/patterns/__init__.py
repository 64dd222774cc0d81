"""The kernel of patterns: the compiled pattern, the search for matches, and the values of a match."""
