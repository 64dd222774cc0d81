"""Commands about what a user writes: start a project, check its files, explain its flows, run its tests."""
