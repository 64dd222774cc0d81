"""Recovery after a failure: reconciliation of the files on disk, checkpoints, repair."""
