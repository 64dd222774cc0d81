"""The loop of epochs: slice, clock, record, commit, and what an epoch writes."""
