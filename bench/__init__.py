"""Benchmarks: the same event files through Millstream and its peers, every result checked before any time
counts.

`python -m bench --list` shows the cases; bench/README.md says what each one measures.
"""
