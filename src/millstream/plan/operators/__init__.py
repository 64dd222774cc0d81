"""Operators: everything that keeps state or changes rows after the prelude, as frozen values."""
