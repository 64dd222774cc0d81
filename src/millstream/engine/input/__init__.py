"""Input of an epoch: readers of slices, the prelude, native combining, rejected rows."""
