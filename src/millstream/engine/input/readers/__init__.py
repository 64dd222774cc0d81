"""Slices as DataFrames: one module for each form that a source may provide (`connect/forms.py`), none per connector."""
