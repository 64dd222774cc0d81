"""Figures of our own engine, without a peer. Every module has `measure(work, events) -> figures`."""
