"""Windows, triggers, accumulation and lateness: the four independent properties of a windowed step."""
