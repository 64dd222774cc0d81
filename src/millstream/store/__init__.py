"""Results kept: `port.py` is the contract, `duckdb.py` the embedded store. One transaction per epoch."""
