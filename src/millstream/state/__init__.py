"""Versioned columnar state: immutable sorted runs, and versions that are lists of runs.

The engine reads state through `state/shard.py` and writes runs; `runtime/` commits the version that names them.
"""
