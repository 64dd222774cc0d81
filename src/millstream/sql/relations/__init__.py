"""What can appear in FROM, one module per kind of relation."""
