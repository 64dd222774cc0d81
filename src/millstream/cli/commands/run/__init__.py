"""`millstream run`: flows of a file, in Python or in SQL."""
