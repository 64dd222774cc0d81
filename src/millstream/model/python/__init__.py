"""User code as values: processes, their typed state, and functions that expressions may call."""
