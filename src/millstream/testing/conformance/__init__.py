"""Suites that every source, sink and store passes: subclass one in a test, and give it a way to open what is tested."""
