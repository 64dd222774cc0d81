"""After a failure: reconciling what is on disk, checkpoints, repair."""
