"""Kernels that call user code: processes and lookups."""
