"""Kernels of relational operators: joins, set operations, top-N, window functions, loops and others."""
