"""Relations: what can appear in FROM, one module per kind."""
