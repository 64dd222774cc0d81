"""SQL of other systems (Postgres, Flink, DuckDB): maps names, types and syntax to Spark SQL."""
