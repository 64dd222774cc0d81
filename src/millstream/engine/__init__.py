"""The engine: performs the epochs of a plan as Spark batch jobs. The only package that imports pyspark.

`runtime/` calls it with a slice and a clock, and commits the changes and the state version that it returns.
"""

from millstream.engine.spark.foreign_warnings import hide_foreign_warnings

hide_foreign_warnings()
