"""The files below the log: write-ahead files, segments, and the layer that reads and writes them."""
