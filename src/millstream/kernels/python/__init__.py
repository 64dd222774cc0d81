"""Kernels that call user code: processes, lookups, user-defined aggregates."""
