"""The storage layer of the log: write-ahead files, segments, and disk access."""
