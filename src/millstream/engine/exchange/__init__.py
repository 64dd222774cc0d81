"""Large epochs on the executors: one Spark job that runs the operators of a plan, with an exchange by key group before
each level of them.

`graph.py` decides which operators run there and at which level, `parcels.py` is the form in which rows travel,
`scan_task.py` and `level_task.py` are the tasks, and `job.py` builds the job. Only `job.py` and `expressions.py` use
Spark.
"""
