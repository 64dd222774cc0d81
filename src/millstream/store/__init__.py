"""Results kept, one transaction per epoch: `port.py` is the contract, `duckdb.py` the embedded store.

`opening.py` opens its file, `names.py` has its names of types and tables.
"""
