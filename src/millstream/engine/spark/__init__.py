"""The Spark session and what surrounds it: Java, class archive, worker daemon, errors, conversion of tables."""
