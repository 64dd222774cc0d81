"""One module per command of `millstream`; each has a `command`."""
