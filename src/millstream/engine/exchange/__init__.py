"""Large epochs on the executors: one Spark job that runs the operators of a plan, with an exchange by key group before
each level of them.

`graph.py` decides which operators run there and at which level, `parcels.py` is the form in which rows travel,
`routes.py` sends them, and `job.py` builds the job of the tasks in `engine/tasks/`. Only `job.py` and `expressions.py`
use Spark.
"""
