"""Commands about a home: its flows and views, queries, watermarks, checkpoints and repair."""
