"""Spark, and nothing but Spark: the only folder that imports pyspark. Performs the epochs of a plan as batch jobs."""
