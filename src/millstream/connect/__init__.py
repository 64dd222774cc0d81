"""Records in and out: `port.py` is the contract, then one file per system. No Spark here; `engine/input/readers.py`
reads.
"""
