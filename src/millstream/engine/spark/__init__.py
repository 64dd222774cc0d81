"""The Spark session and its environment: Java, class archive, worker daemon, errors, conversion of tables."""
