"""Results kept, one transaction per epoch: `port.py` is the contract, `duckdb.py` the embedded store.

`files.py` names its files, `open.py` opens them, `names.py` has its names of types and tables.
"""
