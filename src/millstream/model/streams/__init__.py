"""The public streaming API: streams and their methods. Each method returns a new stream; nothing runs."""
