"""Executes SQL on a home: persistent definitions, queries, subscriptions. `Session` is the entry point."""
