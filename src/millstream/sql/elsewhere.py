"""Statements and constraints that people know from other databases, and what to write in their place."""

REFUSED = frozenset(
    """
    ADD ALTER ANALYZE ATTACH BEGIN CACHE CALL CHECKPOINT CLEAR COMMENT COMMIT DEALLOCATE DECLARE DETACH EXECUTE
    EXPORT FORCE FROM GRANT IMPORT INSTALL KILL LIST LOAD LOCK MSCK OPTIMIZE PIVOT PRAGMA PREPARE REFRESH REPAIR
    RESET REVOKE ROLLBACK SUMMARIZE TRUNCATE UNCACHE UNLOCK UNPIVOT USE VACUUM
    """.split()
)
"""Statements of Spark and DuckDB that people may try."""

CONSTRAINTS = {
    "FOREIGN KEY": "a JOIN in a view leaves out rows without a partner",
    "CONSTRAINT": "only a PRIMARY KEY can have a name: CONSTRAINT name PRIMARY KEY (id)",
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
    "EXPORT": "CREATE SINK name FROM view INTO FILES('folder', format = 'json') writes a view to files",
    "FROM": "a statement begins with SELECT: SELECT * FROM name",
    "GRANT": "a home belongs to one user of the machine; there are no rights inside it",
    "IMPORT": "COPY name FROM 'file.csv' loads rows into a table; CREATE SOURCE ... FROM FILES('folder') follows files",
    "LOAD": "COPY name FROM 'file.csv' loads rows into a table; CREATE SOURCE ... FROM FILES('folder') follows files",
    "PIVOT": "SELECT * FROM name PIVOT (sum(price) FOR quarter IN (1 AS q1, 2 AS q2))",
    "REFRESH": "a view is always up to date; there is nothing to refresh",
    "REPLACE": "INSERT OR REPLACE INTO name VALUES (...)",
    "REVOKE": "a home belongs to one user of the machine; there are no rights inside it",
    "ROLLBACK": "each statement takes place as a whole or not at all; there are no transactions of several statements",
    "START": "each statement takes place as a whole or not at all; there are no transactions of several statements",
    "SUMMARIZE": "DESCRIBE name shows the columns; SELECT count(*), min(a), max(a) FROM name the values",
    "TABLE": "SELECT * FROM name",
    "TRUNCATE": "DELETE FROM name removes all rows of a table",
    "UNPIVOT": "SELECT * FROM name UNPIVOT (value FOR name IN (a, b))",
    "USE": "there are no schemas; millstream --home folder opens another home",
    "VACUUM": "there is nothing to clean up; RETAIN in a view says how long rows stay",
}
"""What to do in place of statements that people may try."""
