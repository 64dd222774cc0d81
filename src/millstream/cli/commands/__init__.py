"""One module per command of `millstream`, with its helpers beside it; each has a `command`. `cli/app.py` lists them."""
