"""Slices as DataFrames: one module for each form that a source may give (`connect/forms.py`), none for a connector."""
