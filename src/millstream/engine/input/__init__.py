"""Records into an epoch: readers of slices, the prelude, combining, rejected rows."""
