"""Supervision of running flows: threads, restarts, leases, standbys, the search for poison records."""
