"""The tasks of the Spark job of a large epoch, as plain functions over batches of parcels.

`engine/exchange/job.py` runs them in Spark: `scan_task.py` or `native_scan_task.py` reads, `level_task.py` runs
operators, `route_task.py` and `batches_task.py` run between two levels. Tests run the same tasks in one process.
"""
