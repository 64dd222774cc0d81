"""Types of a plan, from the analyser of Spark."""
