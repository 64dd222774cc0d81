"""SELECT over views and tables: translates Spark SQL to the dialect of the store."""
