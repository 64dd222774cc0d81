"""Kernels and building blocks of aggregation: rows become partials, partials combine, and results are computed from
partials.
"""
