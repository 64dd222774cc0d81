"""Windows, triggers, accumulation and lateness: the four independent values of a windowed step."""
