"""State transitions: pure functions from (rows, state, clock) to (changes, new rows of state). Polars on Arrow.

Kernels import neither Spark nor files; the engine calls them in the driver or on the executors, with the same result.
"""
