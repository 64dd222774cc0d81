"""One script per system, run in that system's own environment: it imports nothing of this project but
`protocol`.
"""
