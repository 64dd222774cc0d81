"""Results out: readers in other processes."""
