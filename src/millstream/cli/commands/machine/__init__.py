"""Commands about the machine: is it ready, and a local Spark cluster."""
