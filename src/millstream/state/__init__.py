"""Versioned columnar state: immutable sorted runs, and versions that are lists of runs."""
