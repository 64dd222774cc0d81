"""The model: frozen descriptions of flows. Building one runs nothing; `plan` compiles it and `engine` executes it."""
