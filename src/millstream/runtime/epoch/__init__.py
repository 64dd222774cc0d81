"""The epoch loop: slice, clock, record, commit, and the output of an epoch."""
