"""SELECT over views and tables: Spark SQL translated to the dialect of the store."""
