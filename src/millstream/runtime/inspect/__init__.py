"""What a flow reports about itself: status, lag, accounting, the state of processes."""
