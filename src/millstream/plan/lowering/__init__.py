"""Lowering: translates the steps of a flow into scans, feeds and operators."""
