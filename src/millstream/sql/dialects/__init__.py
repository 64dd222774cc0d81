"""SQL of other systems (Postgres, Flink, DuckDB): names, types and forms, mapped to Spark SQL."""
