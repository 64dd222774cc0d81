"""Serves results to readers in other processes."""
