"""Records in and out: `port.py` is the contract, `forms.py` has the forms of slices, `registry.py` the systems; then
come the modules of each system. No Spark here: `engine/input/readers/` reads.
"""
