"""`millstream log`: topics, and the lines that are appended to them."""
