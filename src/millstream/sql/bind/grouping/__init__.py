"""GROUP BY: groups, grouping sets, aggregates, and FILL."""
