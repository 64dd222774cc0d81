"""Runs flows: the epoch loop, epoch records, watermarks and recovery. Never imports pyspark; the engine is a port."""
