"""Planning: turns a flow (what to compute) into a plan of sources, scans and operators (how to compute it).

The planner takes frozen values and returns frozen values; it runs nothing. The engine binds the plan's types and
performs its epochs.
"""
