"""Relational operators: joins, sets, top-N, window functions, loops and the like."""
