"""Connectors: `port.py` is the contract, `forms.py` has the forms of slices, `registry.py` the registered systems; the
other modules implement one system each. No Spark here: `engine/input/readers/` reads.
"""
