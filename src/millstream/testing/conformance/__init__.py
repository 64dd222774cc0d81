"""Conformance suites for sources, sinks and stores. Subclass one in a test and implement how to open the object under
test.
"""
