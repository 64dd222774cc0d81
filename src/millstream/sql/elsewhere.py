"""Statements and constraints that people know from other databases, and what to write in their place."""

REFUSED = frozenset(
    """
    ADD ALTER ANALYZE ATTACH BEGIN CACHE CALL CHECKPOINT CLEAR COMMENT COMMIT COPY DEALLOCATE DECLARE DETACH EXECUTE
    EXPORT FORCE FROM GRANT IMPORT INSTALL KILL LIST LOAD LOCK MERGE MSCK OPTIMIZE PIVOT PRAGMA PREPARE REFRESH REPAIR
    RESET REVOKE ROLLBACK SUMMARIZE TRUNCATE UNCACHE UNLOCK UNPIVOT USE VACUUM
    """.split()
)
"""Statements of Spark and DuckDB that people may try."""

CONSTRAINTS = {
    "FOREIGN KEY": "a JOIN in a view leaves out rows without a partner",
    "CONSTRAINT": "leave the name out: PRIMARY KEY (id)",
    "CHECK": "let a view take only the rows that fit: WHERE condition",
    "UNIQUE": "PRIMARY KEY (a, b) makes the values of columns unique",
}
INSTEAD = {
    "ALTER": "CREATE OR REPLACE VIEW name AS ... computes a view anew; DROP and CREATE a table or source",
    "ANALYZE": "EXPLAIN ANALYZE VIEW name shows rows per second and state; there are no statistics to collect",
    "ATTACH": "CREATE SOURCE name (columns) FROM FILES('folder', format = 'csv') reads files",
    "BEGIN": "each statement takes place as a whole or not at all; there are no transactions of several statements",
    "CALL": "CREATE FUNCTION name AS 'module:function' makes a Python function known to expressions",
    "COMMIT": "each statement takes place as a whole or not at all; there are no transactions of several statements",
    "COPY": "CREATE SOURCE ... FROM FILES('folder', format = 'csv') reads files, CREATE SINK ... INTO FILES writes",
    "EXPORT": "CREATE SINK name FROM view INTO FILES('folder', format = 'json') writes a view to files",
    "FROM": "a statement begins with SELECT: SELECT * FROM name",
    "GRANT": "a home belongs to one user of the machine; there are no rights inside it",
    "IMPORT": "CREATE SOURCE ... FROM FILES('folder', format = 'csv') reads files",
    "LOAD": "CREATE SOURCE ... FROM FILES('folder', format = 'csv') reads files",
    "MERGE": "UPDATE the rows that are there and INSERT the others; a source with a PRIMARY KEY revises its records",
    "PIVOT": "SELECT * FROM name PIVOT (sum(price) FOR quarter IN (1 AS q1, 2 AS q2))",
    "REFRESH": "a view is always up to date; there is nothing to refresh",
    "REPLACE": "UPDATE the row that is there, or DELETE it and INSERT",
    "REVOKE": "a home belongs to one user of the machine; there are no rights inside it",
    "ROLLBACK": "each statement takes place as a whole or not at all; there are no transactions of several statements",
    "START": "each statement takes place as a whole or not at all; there are no transactions of several statements",
    "SUMMARIZE": "DESCRIBE name shows the columns; SELECT count(*), min(a), max(a) FROM name the values",
    "TABLE": "SELECT * FROM name",
    "TRUNCATE": "DELETE FROM name removes all rows of a table",
    "UNPIVOT": "SELECT * FROM name UNPIVOT (value FOR name IN (a, b))",
    "UPSERT": "UPDATE the row that is there, or DELETE it and INSERT; a source with a PRIMARY KEY revises its records",
    "USE": "there are no schemas; millstream --home folder opens another home",
    "VACUUM": "there is nothing to clean up; RETAIN in a view says how long rows stay",
}
"""What to do in place of statements that people may try."""
