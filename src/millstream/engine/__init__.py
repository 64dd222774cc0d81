"""Spark, and nothing but Spark: the only folder that imports pyspark. Performs the epochs of a plan as batch jobs."""

from millstream.engine.spark.foreign_warnings import hide_foreign_warnings

hide_foreign_warnings()
