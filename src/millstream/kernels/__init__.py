"""Kernels: the state transitions of operators, as pure functions on Polars frames.

A kernel maps (rows, state, clock) to (changes, new rows of state). Kernels import neither Spark nor file access. The
engine calls them in the driver or on the executors, writes the rows of state they return through `state/`, and passes
their changes downstream. The result is the same in both places.
"""
