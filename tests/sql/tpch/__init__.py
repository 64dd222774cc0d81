"""The 22 queries of TPC-H, with the parameters of its validation run."""
