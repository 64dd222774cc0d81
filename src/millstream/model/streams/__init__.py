"""What users write: streams and their methods. Each method returns a new stream; nothing runs."""
