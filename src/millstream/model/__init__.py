"""WHAT: frozen descriptions of flows. Building one runs nothing; `plan` reads it, `engine` performs it."""
