"""Stores results, one transaction per epoch: `port.py` is the contract, `duckdb.py` the embedded store.

`files.py` names its files, `open.py` opens them, `names.py` maps types and table names.
"""
