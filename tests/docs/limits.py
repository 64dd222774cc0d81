"""For each limit of SQL in docs/limits.md: statements that show it with the message they get, or why there are none.

A case is a text of statements, the last of which is refused, and a part of its message. After `note:` it is carried out
instead, and the part is of its answer.
"""

CASES: dict[str, list[tuple[str, str]]] = {
    "names": [("CREATE VIEW `a b` AS SELECT auction FROM bids", "'a b' is not a valid name for a view")],
    "sink-loop": [("CREATE SINK k FROM bids INTO LOG('bids')", "the sink `k` would feed itself")],
    "clauses": [
        (
            "CREATE VIEW v AS SELECT * FROM bids PIVOT (sum(price) FOR channel IN (SELECT name FROM items))",
            "PIVOT needs aggregates, one FOR, and a stated list of values",
        ),
        ("CREATE VIEW v AS SELECT price FROM bids ORDER BY price LIMIT 10 PERCENT", "LIMIT with PERCENT"),
        ("CREATE VIEW v AS SELECT price FROM bids LIMIT 3", "LIMIT without ORDER BY would keep any rows"),
        ("CREATE VIEW v AS SELECT DISTINCT ON (price) price, auction FROM bids", "DISTINCT ON without ORDER BY"),
        ("CREATE VIEW v AS SELECT explode(tags) AS a, explode(tags) AS b FROM bids", "two explode(...) in one SELECT"),
        ("CREATE VIEW v AS SELECT price FROM bids TABLESAMPLE (5 ROWS)", "TABLESAMPLE is not allowed"),
        ("CREATE VIEW v AS SELECT price FROM bids FOR UPDATE", "FOR UPDATE is not supported"),
        ("CREATE VIEW v AS SELECT price FROM bids UNION BY NAME SELECT price FROM bids", "BY NAME is not supported"),
    ],
    "aggregates": [
        ("CREATE VIEW v AS SELECT corr(price, bidder) AS c FROM bids", "the aggregate `CORR(price, bidder)`"),
        ("CREATE VIEW v AS SELECT regr_slope(price, bidder) AS c FROM bids", "the aggregate `REGR_SLOPE("),
        ("CREATE VIEW v AS SELECT bit_and(price) AS c FROM bids", "the aggregate `BIT_AND("),
        ("CREATE VIEW v AS SELECT stddev(DISTINCT price) AS c FROM bids", "DISTINCT in stddev is not supported"),
    ],
    "subquery-places": [
        ("CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY (SELECT max(n) FROM hot)", "is not allowed here"),
        (
            "CREATE VIEW v AS SELECT price FROM bids QUALIFY rank() OVER (ORDER BY price) < (SELECT max(n) FROM hot)",
            "a subquery is not allowed here",
        ),
        (
            "CREATE VIEW v AS SELECT b.price FROM bids b LEFT JOIN clicks c ON b.bidder = c.bidder AND b.price IN "
            "(SELECT n FROM hot)",
            "a subquery is not allowed here",
        ),
        ("CREATE VIEW v AS SELECT price FROM bids WHERE price = (SELECT n FROM hot)", "must return at most one row"),
    ],
    "subquery-correlated": [
        (
            "CREATE VIEW v AS SELECT price FROM bids b WHERE price IN (SELECT n FROM hot UNION SELECT b.price)",
            "UNION inside a correlated subquery",
        ),
        (
            "CREATE VIEW v AS SELECT price FROM bids b WHERE EXISTS (WITH w AS (SELECT b.price AS p) SELECT p FROM w)",
            "WITH inside a subquery cannot use outer columns",
        ),
        (
            "CREATE VIEW v AS SELECT price FROM bids b WHERE EXISTS (SELECT 1 FROM clicks c LEFT JOIN hot h ON h.n = "
            "b.price)",
            "in an outer or as-of join, or in a second relation of its FROM",
        ),
    ],
    "now": [
        ("CREATE VIEW v AS SELECT now() AS at FROM bids", "now"),
        (
            "CREATE VIEW v AS SELECT price FROM bids WHERE price > 1 OR ts > now()",
            "`price > 1 OR ts > NOW()` cannot be used here",
        ),
        ("CREATE VIEW v AS SELECT price FROM bids WHERE ts > now() - INTERVAL '1' MONTH", "month"),
        (
            "CREATE VIEW v AS SELECT price FROM bids WHERE ts > now() EMIT ON CLOSE",
            "the rows of this query never become final",
        ),
    ],
    "dml": [
        ("DELETE FROM items RETURNING id", "DELETE takes one table, WHERE, and no more"),
        ("INSERT INTO items VALUES (1, 'a', 1) ON CONFLICT ON CONSTRAINT pk DO NOTHING", "ON CONFLICT ON CONSTRAINT"),
        ("UPDATE items SET price = (SELECT max(n) FROM hot)", "only columns of the table itself are allowed here"),
        ("COPY items TO 'x.csv'", "COPY"),
    ],
    "copy": [("SELECT * FROM FILES('x.csv')", "the function `files` cannot be used")],
    "emit-on-close": [
        ("CREATE VIEW v AS SELECT n FROM hot EMIT ON CLOSE", "the rows of this query never become final"),
        (
            "CREATE VIEW v AS SELECT DISTINCT price FROM bids EMIT ON CLOSE",
            "the rows of this query never become final",
        ),
        (
            "CREATE VIEW v AS SELECT a.n FROM (SELECT count(*) AS n FROM bids GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE))"
            " AS a JOIN hot ON hot.n = a.n EMIT ON CLOSE",
            "EMIT would apply to one side of the join only",
        ),
        (
            "CREATE VIEW v AS SELECT n, count(*) AS c FROM hot GROUP BY n EMIT EVERY 5 ROWS",
            "EMIT after a GROUP BY without a window, over rows that change",
        ),
    ],
    "computed-time": [
        (
            "CREATE SOURCE s (n BIGINT, ts AS timestamp_millis(ms), ms AS n * 1000, "
            "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) FROM LOG('s')",
            "ms",
        )
    ],
    "order": [("note: CREATE VIEW v AS SELECT price FROM bids ORDER BY price", "a view has no order")],
    "window-functions": [
        (
            "CREATE VIEW v AS SELECT sum(price) OVER (ORDER BY price, ts RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS "
            "s FROM bids",
            "a RANGE frame needs one ORDER BY",
        ),
    ],
    "asof": [
        (
            "CREATE VIEW v AS SELECT b.price FROM bids b ASOF RIGHT JOIN clicks c ON b.bidder = c.bidder "
            "AND b.ts >= c.ts",
            "ASOF",
        ),
    ],
    "recursion": [
        (
            "CREATE VIEW v AS WITH RECURSIVE r AS (SELECT auction AS n FROM bids UNION ALL SELECT sum(n) FROM r) "
            "SELECT n FROM r",
            "can read its rows only once, and without an aggregate",
        ),
        ("CREATE VIEW v AS WITH RECURSIVE r AS (SELECT n FROM r) SELECT n FROM r", "a recursive CTE is"),
    ],
    "stored-tables": [
        (
            "CREATE VIEW v AS SELECT b.price FROM bids b RIGHT JOIN items i ON b.auction = i.id",
            "RIGHT JOIN to a stored",
        ),
        ("CREATE VIEW v AS SELECT b.price FROM bids b JOIN items i ON b.auction > i.id", "`b.auction > i.id` in ON"),
    ],
    "on-error-null": [
        (
            "CREATE VIEW v WITH (on_error = 'null') AS SELECT price / auction AS x FROM bids",
            "has on_error = 'null', and computes with records of the source",
        ),
    ],
    "replace": [
        ("ALTER VIEW hot RENAME TO cold", "ALTER is not a Millstream statement"),
        (
            "CREATE VIEW above AS SELECT n FROM hot; CREATE OR REPLACE VIEW hot AS SELECT auction FROM bids",
            "`hot` cannot be replaced: view `above` depends on it",
        ),
    ],
    "history": [
        ("SELECT * FROM HISTORY OF bids, items", "`items` together with the history of a source in one query"),
        (
            "CREATE SOURCE gen FROM GENERATOR('nexmark', 'bid'); SELECT count(*) AS n FROM HISTORY OF gen",
            "it has no history",
        ),
    ],
    "functions": [
        (
            "CREATE VIEW v AS SELECT regexp_match(channel, 'a') AS m FROM bids",
            "the function `regexp_match` cannot be used",
        ),
        ("CREATE VIEW v AS SELECT age(ts) AS a FROM bids", "the function `age` cannot be used"),
        ("CREATE VIEW v AS SELECT channel SIMILAR TO 'a%' AS a FROM bids", "SIMILAR TO is not supported"),
    ],
    "questions": [
        ("SELECT sha512(name) AS h FROM items", "sha2 of 512 bits is not supported in a query"),
        ("SELECT hash(name) AS h FROM items", "hash is not supported in a query"),
        ("SELECT months_between(now(), now()) AS h FROM items", "months_between is not supported in a query"),
        ("SELECT parse_url(name, 'HOST') AS h FROM items", "the store does not support a part of the query"),
    ],
    "processing-time": [
        (
            "CREATE VIEW v AS SELECT count(*) AS n FROM (SELECT *, PROCTIME() AS p FROM bids) GROUP BY TUMBLE(p, "
            "INTERVAL '1' MINUTE)",
            "a PROCTIME() in a query over a source with a WATERMARK",
        ),
        (
            "CREATE SOURCE clocked (ts TIMESTAMP, p AS PROCTIME(), WATERMARK FOR ts AS ts) FROM LOG('clocked'); "
            "CREATE VIEW v AS SELECT count(*) AS n FROM clocked GROUP BY TUMBLE(p, INTERVAL '1' MINUTE) EMIT ON CLOSE",
            "need a watermark, and `p` has none",
        ),
    ],
}
"""Limit -> statements and a part of the message."""

NOTES: dict[str, str] = {
    "backslash": "about folders, not statements: tests/unit/test_settings.py",
    "symbolic-links": "about folders, not statements: tests/unit/test_paths.py",
    "dropped-flow": "says what happens, refuses nothing: tests/unit/live/test_statements.py",
    "subquery-cost": "about cost",
    "changelog": "says what happens, refuses nothing",
    "outer-joins": "about cost",
    "shared-errors": "says what happens, refuses nothing: tests/spark/test_set_aside.py",
    "failing-pairs": "says what happens, refuses nothing: tests/unit/live/test_failures.py",
    "late-views": "says what happens, refuses nothing",
    "start-now": "says what happens, refuses nothing",
    "subscribe": "about how much is kept: tests/unit/live/test_slow_listener.py",
    "python-functions": "about cost and installation",
    "python-in-case": "says what Spark does, refuses nothing",
    "union-types": "only Spark knows such types, when a flow starts",
    "wide-windows": "about cost",
}
"""Limit -> why no statement shows it."""
