-- What is refused, where, why, and what to do.

-- case: An unknown column
CREATE VIEW v AS SELECT auctoin FROM bids;
-- expect error:
--   schema_error at 1:25: there is no column `auctoin`
--   hint: did you mean `auction`?

-- case: An unknown column of an alias
CREATE VIEW v AS SELECT b.auctoin FROM bids AS b;
-- expect error:
--   schema_error at 1:25: there is no column `auctoin` in `b`
--   hint: did you mean `auction`?

-- case: An unknown alias
CREATE VIEW v AS SELECT x.auction FROM bids AS b;
-- expect error:
--   schema_error at 1:25: there is no relation `x` here
--   hint: did you mean `b.auction`?

-- case: An unknown source
CREATE VIEW v AS SELECT auction FROM bidz;
-- expect error:
--   unknown_name at 1:38: there is no source, table or view `bidz`
--   hint: did you mean `bids`?

-- case: A column that a subquery does not give
CREATE VIEW v AS SELECT price FROM (SELECT auction FROM bids);
-- expect error:
--   schema_error at 1:25: there is no column `price`
--   hint: a string is written in single quotes: 'price'

-- case: Two columns of one name
CREATE VIEW v AS SELECT auction, price AS auction FROM bids;
-- expect error:
--   definition_error at 1:34: two columns of the result are called `auction`
--   hint: give one of them another name: ... AS other_name; or leave it out: SELECT a.*, b.* EXCEPT (auction)

-- case: Not grouped by
CREATE VIEW v AS SELECT channel, count(*) AS n FROM bids GROUP BY auction;
-- expect error:
--   schema_error at 1:25: `channel` is neither grouped by nor inside an aggregate
--   hint: add it to GROUP BY, or take one of its values: max(channel)

-- case: Not grouped by in HAVING
CREATE VIEW v AS SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING price > 1;
-- expect error:
--   schema_error at 1:82: `price` is neither grouped by nor inside an aggregate
--   hint: add it to GROUP BY, or take one of its values: max(price)

-- case: A number in GROUP BY that is too great
CREATE VIEW v AS SELECT auction, count(*) AS n FROM bids GROUP BY 3;
-- expect error:
--   definition_error at 1:67: GROUP BY 3: the result has no column with this number; it has 2
--   hint: name the column, or count from 1

-- case: An aggregate in GROUP BY
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY count(*);
-- expect error:
--   schema_error at 1:58: an aggregate cannot be grouped by

-- case: An aggregate in WHERE
CREATE VIEW v AS SELECT auction FROM bids WHERE count(*) > 1;
-- expect error:
--   schema_error at 1:49: the aggregate `COUNT(*)` is not allowed here
--   hint: HAVING, or WHERE in an outer query, can use the results of a GROUP BY

-- case: An aggregate inside another
CREATE VIEW v AS SELECT max(count(*)) AS m FROM bids;
-- expect error:
--   schema_error at 1:29: an aggregate cannot be inside another
--   hint: compute the inner one in a subquery: SELECT max(n) FROM (SELECT count(*) AS n ...)

-- case: An aggregate that is not there yet
CREATE VIEW v AS SELECT corr(price, bidder) AS p FROM bids;
-- expect error:
--   unsupported at 1:25: the aggregate `CORR(price, bidder)` is not supported
--   hint: there are: count, count(DISTINCT), count_if, sum, avg, min, max, min_by, max_by, first, last, any_value, mode, array_agg, collect_set, string_agg, percentile_cont, percentile_disc, variance, var_pop, stddev, stddev_pop, skewness, kurtosis, bool_and, bool_or, median, percentile, approx_count_distinct, approx_percentile, approx_top_k

-- case: A percentile whose part is not from 0 to 1
CREATE VIEW v AS SELECT percentile(price, 95) AS p FROM bids;
-- expect error:
--   definition_error at 1:36: 95 is not a fraction
--   hint: numbers from 0 to 1, e.g. 0.95

-- case: A percentile whose part is not a constant
CREATE VIEW v AS SELECT approx_percentile(price, bidder) AS p FROM bids;
-- expect error:
--   unsupported at 1:50: `bidder` in approx_percentile must be a number
--   hint: write the number itself, e.g. 0.95

-- case: A percentile with a frequency
CREATE VIEW v AS SELECT percentile(price, 0.5, bidder) AS p FROM bids;
-- expect error:
--   unsupported at 1:36: percentile with a frequency is not supported
--   hint: leave the third argument out; sequence(1, n) and explode repeat a row

-- case: The median of different values
CREATE VIEW v AS SELECT median(DISTINCT price) AS p FROM bids;
-- expect error:
--   unsupported at 1:25: DISTINCT in median is not supported
--   hint: use SELECT DISTINCT in a subquery, and aggregate over it

-- case: The median of text
CREATE VIEW v AS SELECT median(channel) AS p FROM bids;
-- expect error:
--   schema_error at 1:32: percentile of `p` needs numbers, but `channel` is STRING
--   hint: cast it: CAST(price AS DOUBLE)

-- case: A distinct count with an error that cannot be
CREATE VIEW v AS SELECT approx_count_distinct(price, 2) AS p FROM bids;
-- expect error:
--   schema_error at 1:54: 2 is not a valid error of a distinct count
--   hint: a number from 0.00072 to 1; 0.05 is five in a hundred

-- case: A distinct count that would be too exact
CREATE VIEW v AS SELECT approx_count_distinct(price, 0.0001) AS p FROM bids;
-- expect error:
--   schema_error at 1:54: 0.0001 is not a valid error of a distinct count
--   hint: a number from 0.00072 to 1; 0.05 is five in a hundred

-- case: The most frequent none
CREATE VIEW v AS SELECT approx_top_k(channel, 0) AS p FROM bids;
-- expect error:
--   definition_error at 1:25: k=0 is out of range
--   hint: a whole number from 1 to 100000

-- case: Several of max_by
CREATE VIEW v AS SELECT max_by(channel, price, 3) AS p FROM bids;
-- expect error:
--   unsupported at 1:32: max_by gives one value here
--   hint: ORDER BY ... LIMIT n, or row_number() OVER (...) <= n, gives several rows

-- case: bool_and of numbers
CREATE VIEW v AS SELECT bool_and(price) AS p FROM bids;
-- expect error:
--   schema_error at 1:34: bool_and of `p` needs a condition, but `price` is BIGINT
--   hint: compare it: price > 0

-- case: A column that is no condition
CREATE VIEW v AS SELECT auction FROM bids WHERE price;
-- expect error:
--   schema_error at 1:49: where needs a condition, but `price` is BIGINT
--   hint: compare it with something, as in `price > 100`

-- case: Too many grouping sets
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY CUBE (auction, bidder, price, channel, ts, auction + 1, bidder + 1);
-- expect error:
--   unsupported at 1:64: more than 64 grouping sets in one GROUP BY
--   hint: name the ones that are needed: GROUPING SETS ((a, b), (a), ())

-- case: A window in some grouping sets
CREATE VIEW v AS SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY GROUPING SETS ((window_start, window_end), (channel));
-- expect error:
--   unsupported at 1:133: a window in some of the grouping sets only
--   hint: group by it outside of them, or in each: GROUPING SETS ((window_start, window_end, a), ...)

-- case: A window over what is no event time
CREATE VIEW v AS SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(price), INTERVAL '1' SECOND)) GROUP BY window_start;
-- expect error:
--   schema_error at 1:80: a window needs a TIMESTAMP or a DATE, but `price` is BIGINT
--   hint: convert it first: SELECT *, timestamp_millis(price) AS happened FROM ...

-- case: A window without its length
CREATE VIEW v AS SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts))) GROUP BY window_start;
-- expect error:
--   definition_error at 1:50: TUMBLE cannot be read: its size is missing
--   hint: e.g. TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)

-- case: A window with too many lengths
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, '1 second', '1 second', '1 second') GROUP BY window_start;
-- expect error:
--   definition_error at 1:44: TUMBLE cannot be read: at most 2 values can follow
--   hint: e.g. TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)

-- case: A window with an unknown name
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), LENGTH => '1 second') GROUP BY window_start;
-- expect error:
--   definition_error at 1:44: TUMBLE cannot be read: there is no `length`
--   hint: e.g. TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)

-- case: A window without a time
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, '1 second') GROUP BY window_start;
-- expect error:
--   definition_error at 1:44: TUMBLE cannot be read: the time follows the table: DESCRIPTOR(ts)
--   hint: e.g. TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)

-- case: A length that is none
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, 'soon') GROUP BY window_start;
-- expect error:
--   definition_error at 1:61: the length of a window 'soon' is not a duration
--   hint: write it like "10 seconds", "500 ms" or "1 hour 30 minutes"

-- case: A length that is a number
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, 10) GROUP BY window_start;
-- expect error:
--   definition_error at 1:61: `10` is not a duration
--   hint: e.g. INTERVAL '10' SECOND

-- case: A window of no length
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, '0 seconds') GROUP BY window_start;
-- expect error:
--   definition_error at 1:44: window size must be longer than zero, not '0s'
--   hint: e.g. "10 seconds"

-- case: A window in months
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, INTERVAL '1' MONTH) GROUP BY window_start;
-- expect error:
--   definition_error at 1:70: the length of a window '1 month' is not a duration
--   hint: write it like "10 seconds", "500 ms" or "1 hour 30 minutes"

-- case: A window that is not grouped by
CREATE VIEW v AS SELECT channel, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY channel;
-- expect error:
--   unsupported at 1:25: the rows of a window function are grouped without their window
--   hint: add window_start, window_end to GROUP BY

-- case: Two windows
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY TUMBLE(ts, '1 second'), TUMBLE(ts, '2 seconds');
-- expect error:
--   unsupported at 1:82: two windows in one GROUP BY
--   hint: write a view for each, or CUMULATE for windows that grow

-- case: Sessions cut by another key
CREATE VIEW v AS SELECT channel, count(*) AS n FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, channel;
-- expect error:
--   unsupported at 1:25: sessions are cut by other columns than the rows are grouped by
--   hint: SESSION(TABLE ... PARTITION BY channel, ...)

-- case: A window function outside of its place
CREATE VIEW v AS SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) AS s FROM bids;
-- expect error:
--   unsupported at 1:25: `tumble_start` needs the windows of a GROUP BY, and is not allowed here
--   hint: GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), with TUMBLE_START(...) in SELECT

-- case: A border in WHERE
CREATE VIEW v AS SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE window_start > ts GROUP BY window_start, window_end;
-- expect error:
--   unsupported at 1:114: `window_start` can be used only after GROUP BY window_start, window_end

-- case: A window behind a group
CREATE VIEW v AS SELECT count(*) AS n FROM hot GROUP BY TUMBLE(auction, '1 second');
-- expect error:
--   schema_error at 1:64: a window needs a TIMESTAMP or a DATE, but `auction` is BIGINT
--   hint: convert it first: SELECT *, timestamp_millis(auction) AS happened FROM ...

-- case: Processing time in a column
CREATE VIEW v AS SELECT sensor, seen > 5 AS x FROM readings;
-- expect error:
--   unsupported at 1:33: `seen` is the time of processing, which differs from run to run
--   hint: use it as the time of a window only

-- case: EMIT without groups
CREATE VIEW v AS SELECT auction FROM bids DISCARDING;
-- expect error:
--   definition_error at 1:25: EMIT, ALLOWED LATENESS and FILL need the windows of a GROUP BY, and this query has none
--   hint: EMIT ON CLOSE and EMIT ON CHANGE can follow any query

-- case: EMIT of nothing
CREATE VIEW v AS SELECT count(*) AS n FROM bids EMIT SOMETIMES;
-- expect error:
--   definition_error at 1:54: the statement cannot be parsed
--   hint: write EMIT ON CHANGE (the default) or EMIT ON CLOSE at the end of a view

-- case: EMIT without an end
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT EVERY;
-- expect error:
--   definition_error at 1:76: the statement ends too early
--   hint: docs/guide/sql.md has an example of each statement

-- case: EMIT twice
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT ON CHANGE EMIT ON CHANGE;
-- expect error:
--   definition_error at 1:89: the trigger is specified twice

-- case: EVERY without ROWS
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT EVERY 100;
-- expect error:
--   definition_error at 1:80: ROWS is expected here
--   hint: e.g. EVERY 100 ROWS, or EVERY INTERVAL '1' SECOND

-- case: An unknown clause
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT ON CHANGE KEEPING;
-- expect error:
--   definition_error at 1:81: a clause of the view is expected here
--   hint: one of: DISCARDING, ACCUMULATING, RETRACTING, EMIT, ALLOWED LATENESS, RETAIN, FILL

-- case: RETAIN without a window
CREATE VIEW v AS SELECT auction, count(*) AS n FROM bids GROUP BY auction RETAIN INTERVAL '1' DAY;
-- expect error:
--   definition_error at 1:1: the view `v` has a retention but no window to measure it by
--   hint: add .window(...), or leave the retention out

-- case: RETAIN in months
CREATE VIEW v AS SELECT auction FROM bids RETAIN INTERVAL '1' MONTH;
-- expect error:
--   definition_error at 1:63: how long rows are kept in MONTH has no fixed length
--   hint: write it in days

-- case: now in an OR
CREATE VIEW v AS SELECT auction FROM bids WHERE ts > now() - INTERVAL 1 HOUR OR price > 1;
-- expect error:
--   unsupported at 1:49: `ts > NOW() - INTERVAL '1' HOUR OR price > 1` cannot be used here
--   hint: e.g. WHERE ts > now() - INTERVAL '1' HOUR; or compute it in a query: SELECT now() - ts FROM view

-- case: current_date without brackets
CREATE VIEW v AS SELECT auction, current_date AS d FROM bids;
-- expect error:
--   unsupported at 1:1: `current_date` cannot be used here
--   hint: e.g. WHERE ts > now() - INTERVAL '1' HOUR; or compute it in a query: SELECT now() - ts FROM view

-- case: rand
CREATE VIEW v AS SELECT auction FROM bids WHERE rand() < 0.1;
-- expect error:
--   unsupported at 1:49: `rand` cannot be used here
--   hint: use the event time; or use it in a query: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: input_file_name
CREATE VIEW v AS SELECT input_file_name() AS f FROM bids;
-- expect error:
--   unsupported at 1:25: `input_file_name` cannot be used here
--   hint: use the event time; or use it in a query: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: reflect
CREATE VIEW v AS SELECT reflect('java.lang.System', 'exit') AS x FROM bids;
-- expect error:
--   statement_refused at 1:25: the function `reflect` cannot be used
--   hint: functions are those of Spark SQL; CREATE FUNCTION adds your own

-- case: An unknown function
CREATE VIEW v AS SELECT auction, frobnicate(price) AS p FROM bids;
-- expect error:
--   statement_refused at 1:34: the function `frobnicate` cannot be used
--   hint: functions are those of Spark SQL; CREATE FUNCTION adds your own

-- case: stack
CREATE VIEW v AS SELECT stack(2, 1, 2) AS x FROM bids;
-- expect error:
--   unsupported at 1:25: `stack` turns one row into several, and is not allowed here
--   hint: alone in SELECT, explode(tags) AS tag can; or FROM ... LATERAL VIEW explode(tags) t AS tag

-- case: explode inside an expression
CREATE VIEW v AS SELECT concat(explode(tags), '!') AS x FROM bids;
-- expect error:
--   unsupported at 1:25: `explode` turns one row into several, and is not allowed here
--   hint: alone in SELECT, explode(tags) AS tag can; or FROM ... LATERAL VIEW explode(tags) t AS tag

-- case: Two explodes
CREATE VIEW v AS SELECT explode(tags) AS a, explode(tags) AS b FROM bids;
-- expect error:
--   unsupported at 1:45: two explode(...) in one SELECT
--   hint: all pairs: FROM t LATERAL VIEW explode(a) x AS e LATERAL VIEW explode(b) y AS f; side by side: explode(arrays_zip(a, b)) AS pair

-- case: Elements with a name that is taken
CREATE VIEW v AS SELECT auction FROM bids LATERAL VIEW explode(tags) t AS price;
-- expect error:
--   schema_error at 1:64: there is already a column `price`
--   hint: give the elements another name

-- case: A join without ON
CREATE VIEW v AS SELECT b.auction FROM bids b JOIN items i;
-- expect error:
--   definition_error at 1:52: a join needs ON with equal columns
--   hint: e.g. JOIN t ON t.id = s.id

-- case: A join by what is not equal
CREATE VIEW v AS SELECT b.auction, i.name FROM bids b JOIN items i ON i.id > b.auction;
-- expect error:
--   unsupported at 1:71: `i.id > b.auction` in ON
--   hint: each condition is a column of the table = an expression over the stream, joined by AND

-- case: RIGHT JOIN
CREATE VIEW v AS SELECT b.auction, i.name FROM bids b RIGHT JOIN items i ON i.id = b.auction;
-- expect error:
--   unsupported at 1:66: RIGHT JOIN to a stored table that is looked up
--   hint: CREATE VIEW ... WITH (tables = 'live') AS ...: all joins work there

-- case: MATCH_RECOGNIZE
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (PATTERN (a b));
-- expect error:
--   definition_error at 1:37: ORDER BY is missing
--   hint: the event time

-- case: A view of itself
CREATE VIEW v AS SELECT auction FROM v;
-- expect error:
--   definition_error at 1:38: `v` is defined by itself

-- case: History in a view
CREATE VIEW v AS SELECT auction FROM HISTORY OF bids;
-- expect error:
--   unsupported at 1:38: FROM HISTORY OF can be used in queries, not in views

-- case: UNION of different widths
CREATE VIEW v AS SELECT auction FROM bids UNION ALL SELECT bidder, page FROM clicks;
-- expect error:
--   schema_error at 1:60: the parts of a UNION have 1 and 2 columns
--   hint: select the same number of columns in both; NULL AS name fills one in

-- case: ORDER BY what is not there
CREATE VIEW v AS SELECT auction FROM bids ORDER BY nothing;
-- expect error:
--   schema_error at 1:52: there is no column `nothing`
--   hint: a string is written in single quotes: 'nothing'

-- case: LIMIT without ORDER BY
CREATE VIEW v AS SELECT auction FROM bids LIMIT 5;
-- expect error:
--   unsupported at 1:49: LIMIT without ORDER BY would keep any rows
--   hint: add ORDER BY

-- case: LIMIT of nothing
CREATE VIEW v AS SELECT auction FROM bids ORDER BY price LIMIT 0;
-- expect error:
--   definition_error at 1:52: a bound below 1 excludes every row

-- case: LIMIT of an expression
CREATE VIEW v AS SELECT auction FROM bids ORDER BY price LIMIT 1 + 1;
-- expect error:
--   definition_error at 1:64: LIMIT needs a whole number
--   hint: write the number itself: LIMIT 10

-- case: TABLESAMPLE
CREATE VIEW v AS SELECT auction FROM bids TABLESAMPLE (5 ROWS);
-- expect error:
--   statement_refused at 1:56: TABLESAMPLE is not allowed in a query
--   hint: a result must be the same every time: filter on a column instead, e.g. WHERE id % 10 = 0

-- case: A hint
CREATE VIEW v AS SELECT /*+ BROADCAST(bids) */ auction FROM bids;
-- expect error:
--   unsupported at 1:48: a hint is not supported in a view
--   hint: leave it out: the plan of a view does not depend on hints

-- case: A condition that is none
CREATE VIEW v AS SELECT auction FROM bids WHERE price + 1;
-- expect error:
--   schema_error at 1:49: where needs a condition, but `price + 1` is BIGINT
--   hint: compare it with something, as in `price > 100`

-- case: A path as a source
CREATE VIEW v AS SELECT * FROM parquet.`/etc/passwd`;
-- expect error:
--   statement_refused at 1:32: `parquet.`/etc/passwd``: name a view, table or source without a schema or path
--   hint: there are no schemas: write the name alone; SHOW TABLES and SHOW VIEWS list what there is

-- case: A name that is taken
CREATE TABLE bids (a INT);
-- expect error:
--   definition_error: `bids` is already the name of a source

-- case: A name that is none
CREATE VIEW `a b` AS SELECT auction FROM bids;
-- expect error:
--   definition_error at 1:13: 'a b' is not a valid name for a view
--   hint: use letters, digits and _, beginning with a letter, at most 63 characters

-- case: An option that is none
CREATE VIEW v WITH (speed = 5) AS SELECT auction FROM bids;
-- expect error:
--   definition_error at 1:1: a view has no option `speed`
--   hint: options are: panes, start, flow, retain, tables, state_ttl, on_error

-- case: A place to begin that is none
CREATE VIEW v WITH (start = 'tomorrow') AS SELECT auction FROM bids;
-- expect error:
--   definition_error at 1:1: start = 'tomorrow' is not a start position
--   hint: 'earliest', 'now', or a time: '2026-01-01T00:00:00Z'

-- case: A type that is none
CREATE TABLE t (a BIGINTT);
-- expect error:
--   schema_error at 1:19: `BIGINTT` is not a type
--   hint: e.g. BIGINT, DECIMAL(10, 2), ARRAY<STRING> or STRUCT<a: INT, b: STRING>

-- case: A type with more behind it
CREATE TABLE t (a BIGINT DEFAULT 5);
-- expect error:
--   unsupported at 1:26: DEFAULT of a column is not supported
--   hint: write the value in each INSERT, or coalesce(column, value) in a view

-- case: A column without a type
CREATE TABLE t (a, b INT);
-- expect error:
--   definition_error at 1:18: the type of `a` is expected here
--   hint: e.g. BIGINT, DECIMAL(10, 2) or ARRAY<STRING>

-- case: A table without columns
CREATE TABLE t ();
-- expect error:
--   definition_error at 1:17: at least one column is expected here
--   hint: (id BIGINT, name STRING)

-- case: A watermark of another column
CREATE SOURCE s (a TIMESTAMP, b TIMESTAMP, WATERMARK FOR a AS b - INTERVAL '1' SECOND) FROM LOG('s');
-- expect error:
--   definition_error at 1:63: the watermark is `a` minus an interval
--   hint: a - INTERVAL '4' SECOND

-- case: A watermark over a number
CREATE SOURCE s (a BIGINT, WATERMARK FOR a AS a - INTERVAL '1' SECOND) FROM LOG('s');
-- expect error:
--   schema_error at 1:1: event_time=`a` is int64, not a TIMESTAMP
--   hint: declare it as `a TIMESTAMP`

-- case: A source from nowhere
CREATE SOURCE s (a INT);
-- expect error:
--   definition_error at 1:24: FROM is expected here
--   hint: FROM FILES('data/bids', format = 'json'), LOG('topic') or GENERATOR('nexmark', 'bid')

-- case: Files without a format
CREATE SOURCE s (a INT) FROM FILES('data');
-- expect error:
--   definition_error at 1:1: FILES(...) needs a format
--   hint: e.g. FILES('data/bids', format = 'json')

-- case: Files of another machine
CREATE SOURCE s (a INT) FROM FILES('s3://bucket/x', format = 'json');
-- expect error:
--   unsupported at 1:1: FILES('s3://bucket/x'): only files of this machine can be read
--   hint: e.g. FILES('data/bids')

-- case: An unknown option of files
CREATE SOURCE s (a INT) FROM FILES('data', format = 'json', mode = 'x');
-- expect error:
--   definition_error at 1:1: FILES has no option `mode`
--   hint: options are: path, format, header, bounded

-- case: An unknown generator
CREATE SOURCE s FROM GENERATOR('rows');
-- expect error:
--   definition_error at 1:1: there is no generator `rows`
--   hint: there are: nexmark

-- case: A number of partitions that is none
CREATE SOURCE s (a INT) FROM LOG('s', partitions = 'many');
-- expect error:
--   definition_error at 1:1: the option `partitions` of LOG is a whole number

-- case: A function of Java
CREATE FUNCTION f AS 'com.example.Function';
-- expect error:
--   definition_error at 1:22: `com.example.Function` does not name a Python function
--   hint: AS 'module:function'

-- case: A statement that is none
SELEKT auction FROM bids;
-- expect error:
--   definition_error at 1:1: a statement is expected here
--   hint: did you mean SELECT?

-- case: A statement of another system
PRAGMA database_list;
-- expect error:
--   statement_refused at 1:1: PRAGMA is not a Millstream statement
--   hint: docs/guide/sql.md lists the statements

-- case: What to create
CREATE INDEX i ON bids (auction);
-- expect error:
--   definition_error at 1:8: what to create is expected here
--   hint: one of: SOURCE, TABLE, VIEW, SINK, FUNCTION

-- case: A word too many
SHOW VIEWS NOW;
-- expect error:
--   definition_error at 1:12: this is not expected here
--   hint: the statement is complete before it

-- case: A statement that ends too early
CREATE VIEW v AS;
-- expect error:
--   definition_error at 1:17: a SELECT is expected here
--   hint: CREATE VIEW name AS SELECT ... FROM source

-- case: A bracket too few
CREATE VIEW v AS SELECT (auction FROM bids;
-- expect error:
--   definition_error at 1:34: the statement cannot be parsed
--   hint: count the brackets

-- case: A quote too few
CREATE VIEW v AS SELECT 'auction FROM bids;
-- expect error:
--   definition_error at 1:25: the text cannot be parsed
--   hint: a string ends with the quote that it begins with: 'it''s'

-- case: An epoch that is none
SUBSCRIBE TO hot AS OF EPOCH yesterday;
-- expect error:
--   definition_error at 1:30: the epoch, a whole number, is expected here
--   hint: e.g. 7

-- case: SHOW of nothing
SHOW VIEW;
-- expect error:
--   definition_error at 1:6: what to show is expected here
--   hint: did you mean VIEWS?

-- case: UPDATE with two other tables
UPDATE items SET price = 1 FROM hot, bids;
-- expect error:
--   unsupported at 1:1: UPDATE with more than one relation is not supported
--   hint: MERGE INTO table USING source ON condition WHEN MATCHED THEN UPDATE SET ... | DELETE

-- case: DELETE with LIMIT
DELETE FROM items LIMIT 1;
-- expect error:
--   unsupported at 1:1: DELETE takes one table, WHERE, and no more

-- case: UPDATE with a subquery
UPDATE items SET price = (SELECT 1);
-- expect error:
--   unsupported at 1:34: only columns of the table itself are allowed here
--   hint: MERGE INTO the table USING (SELECT ...), which computes other values first

-- case: INSERT into what is no column
INSERT INTO items (id, 5) VALUES (1, 2);
-- expect error:
--   definition_error at 1:24: a name for a column is expected here

-- case: INSERT without values
INSERT INTO items VALUES;
-- expect error:
--   definition_error at 1:25: ( is expected here
--   hint: name the columns or values in brackets

-- case: A question to a source
SELECT * FROM bids;
-- expect error:
--   view_not_found: there is no view or table `bids`

-- case: A question with a function that reads files
SELECT * FROM read_csv('/etc/passwd');
-- expect error:
--   statement_refused at 1:15: `READ_CSV('/etc/passwd')` is not allowed in a query
--   hint: a query is a SELECT over sources, views and tables; docs/language.md lists the forms

-- case: Too deep
CREATE VIEW v AS SELECT (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))) AS x FROM bids;
-- expect error:
--   statement_refused at 1:225: more than 200 nested brackets

-- case: ORDER BY a number that is too great
CREATE VIEW v AS SELECT auction FROM bids ORDER BY 2 LIMIT 1;
-- expect error:
--   definition_error at 1:52: ORDER BY 2: the result has no column with this number; it has 1
--   hint: name the column, or count from 1

-- case: Types as functions inside one another
CREATE VIEW v AS SELECT date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(ts)))))))))))))))))))))))))))))) AS x FROM bids;
-- expect error:
--   statement_refused at 1:18: the statement is nested too deeply
--   hint: split it: a view can read from another view

-- case: Many joins without ON
CREATE VIEW v AS SELECT auction FROM bids JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items;
-- expect error:
--   statement_refused at 1:18: the statement is nested too deeply
--   hint: split it: a view can read from another view

-- case: A punctuation that cannot be read
CREATE SOURCE s (a INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM LOG('s') WITH (punctuation = 'a = (');
-- expect error:
--   definition_error at 1:5: the statement cannot be parsed
--   hint: queries are written in Spark SQL; docs/language.md lists the forms

-- case: A comparison of two columns with all rows of a subquery
CREATE VIEW v AS SELECT auction FROM bids WHERE (auction, price) > ALL (SELECT bidder, bidder FROM clicks);
-- expect error:
--   unsupported at 1:50: a comparison by > with ALL (SELECT ...)
--   hint: compare one value with one column; (a, b) IN (SELECT x, y ...) compares several

-- case: IN with two columns
CREATE VIEW v AS SELECT auction FROM bids WHERE auction IN (SELECT bidder, page FROM clicks);
-- expect error:
--   schema_error at 1:49: IN compares with one column, not 2

-- case: UNION inside a subquery that uses the rows around it
CREATE VIEW v AS SELECT auction FROM bids b WHERE EXISTS (SELECT 1 FROM clicks c WHERE c.bidder = b.bidder UNION SELECT 1 FROM hot);
-- expect error:
--   unsupported at 1:66: UNION inside a correlated subquery
--   hint: write one subquery for each part

-- case: WITH inside a subquery that uses the rows around it
CREATE VIEW v AS SELECT auction FROM bids b WHERE EXISTS (WITH w AS (SELECT 1 AS x FROM clicks c WHERE c.bidder = b.bidder) SELECT x FROM w);
-- expect error:
--   unsupported at 1:115: WITH inside a subquery cannot use outer columns
--   hint: write that part as a subquery in FROM

-- case: The rows around a subquery in an outer join of it
CREATE VIEW v AS SELECT auction, (SELECT count(*) FROM clicks c LEFT JOIN hot h ON h.auction = b.auction) AS n FROM bids b;
-- expect error:
--   unsupported at 1:84: a correlated subquery with outer columns in an outer or as-of join, or in a second relation of its FROM
--   hint: use them in its WHERE, or in the first relation of its FROM

-- case: A subquery as a key
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY (SELECT max(n) FROM hot);
-- expect error:
--   unsupported at 1:66: a subquery is not allowed here
--   hint: it can in FROM, WHERE, SELECT, HAVING, ORDER BY and ON of inner joins; or make a view of it

-- case: A column that neither a subquery nor the rows around it have
CREATE VIEW v AS SELECT auction, (SELECT max(page) FROM clicks c WHERE c.bidder = b.nobody) AS p FROM bids b;
-- expect error:
--   schema_error at 1:83: there is no column `nobody` in `b`
--   hint: name one of the columns of `b`

-- case: A value of several columns
CREATE VIEW v AS SELECT auction, (SELECT max(page), min(page) FROM clicks) AS p FROM bids;
-- expect error:
--   schema_error at 1:42: a value is one column, not 2

-- case: A subquery over groups that uses a column without a group
CREATE VIEW v AS SELECT auction, (SELECT max(page) FROM clicks c WHERE c.bidder = b.bidder) AS p, count(*) AS n FROM bids b GROUP BY auction;
-- expect error:
--   schema_error at 1:83: `bidder` is neither grouped by nor inside an aggregate
--   hint: add it to GROUP BY, or take one of its values: max(bidder)

-- case: A value of many rows
CREATE VIEW v AS SELECT auction FROM bids WHERE price > (SELECT n FROM hot);
-- expect error:
--   unsupported at 1:65: a scalar subquery must return at most one row
--   hint: an aggregate without GROUP BY does, e.g. (SELECT max(x) ...), or ORDER BY ... LIMIT 1; or use IN or EXISTS

-- case: A name that both sides have
CREATE VIEW v AS SELECT bidder FROM bids b JOIN clicks c ON b.bidder = c.bidder;
-- expect error:
--   schema_error at 1:25: `bidder` is a column of `b` and of `c`
--   hint: qualify it: b.bidder

-- case: All columns of two sides that share one
CREATE VIEW v AS SELECT * FROM bids b JOIN clicks c ON b.bidder = c.bidder;
-- expect error:
--   definition_error at 1:1: two columns of the result are called `bidder`, and two `ts`
--   hint: give one of them another name: ... AS other_name; or leave it out: SELECT a.*, b.* EXCEPT (bidder, ts)

-- case: A stream joined to itself without a name
CREATE VIEW v AS SELECT bids.auction FROM bids JOIN bids ON bids.auction = bids.bidder;
-- expect error:
--   definition_error at 1:53: `bids` appears twice
--   hint: give one of them another name: ... AS other

-- case: USING a column of one side
CREATE VIEW v AS SELECT auction FROM bids b JOIN clicks c USING (page);
-- expect error:
--   schema_error at 1:50: USING (page): one side has no such column
--   hint: write ON a.x = b.y where the two columns have different names

-- case: ASOF without a time
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN clicks c ON b.bidder = c.bidder;
-- expect error:
--   definition_error at 1:57: ASOF JOIN needs a comparison of times in ON
--   hint: e.g. ON a.id = b.id AND a.ts >= b.ts

-- case: ASOF with two comparisons of columns
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i ON b.auction = i.id AND b.price >= i.price AND i.id <= b.bidder;
-- expect error:
--   definition_error at 1:57: it is ambiguous which comparison of this ASOF JOIN chooses the row
--   hint: specify it before ON: ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON ...

-- case: ASOF with a condition on both sides
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i ON b.auction = i.id AND b.price >= i.price AND i.name <> b.channel;
-- expect error:
--   unsupported at 1:57: `i.name <> b.channel` in an as-of join
--   hint: equal columns, one comparison, and how far apart: a.id = b.id AND a.ts >= b.ts AND b.ts >= a.ts - INTERVAL ...

-- case: ASOF with a bound on the wrong side
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i ON b.auction = i.id AND b.price >= i.price AND i.price <= b.price + 5;
-- expect error:
--   unsupported at 1:57: `i.price <= b.price + 5` in an as-of join
--   hint: equal columns, one comparison, and how far apart: a.id = b.id AND a.ts >= b.ts AND b.ts >= a.ts - INTERVAL ...

-- case: RIGHT ASOF
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF RIGHT JOIN items i ON b.auction = i.id AND b.price >= i.price;
-- expect error:
--   unsupported at 1:63: RIGHT ASOF JOIN
--   hint: ASOF JOIN and ASOF LEFT JOIN are

-- case: ASOF of types that have no order together
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i ON b.price >= i.name;
-- expect error:
--   schema_error at 1:57: an as-of join cannot compare BIGINT with STRING
--   hint: cast one of them, as in CAST(a.id AS BIGINT) = b.id

-- case: MATCH_CONDITION of one side
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i MATCH_CONDITION (b.price >= b.bidder) ON b.auction = i.id;
-- expect error:
--   definition_error at 1:82: MATCH_CONDITION compares a value of the left with one of the right
--   hint: MATCH_CONDITION (a.ts >= b.ts), with >=, >, <= or <; or NEAREST(a.ts, b.ts)

-- case: MATCH_CONDITION that is no order
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i MATCH_CONDITION (b.price = i.price) ON b.auction = i.id;
-- expect error:
--   definition_error at 1:90: `=` in MATCH_CONDITION: it takes one comparison, with >=, >, <= or <
--   hint: the other conditions belong in ON: MATCH_CONDITION (a.ts >= b.ts) ON a.id = b.id AND ...

-- case: NEAREST of one value
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i MATCH_CONDITION (NEAREST(b.price)) ON b.auction = i.id;
-- expect error:
--   definition_error at 1:82: NEAREST takes a value of the left and one of the right
--   hint: MATCH_CONDITION (NEAREST(a.ts, b.ts))

-- case: NEAREST of texts
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i MATCH_CONDITION (NEAREST(b.channel, i.name)) ON b.auction = i.id;
-- expect error:
--   schema_error at 1:57: the nearest row needs a time or a number on both sides, not STRING
--   hint: cast both, as in NEAREST(CAST(a.ts AS TIMESTAMP), b.ts)

-- case: NEAREST with a bound that is no length
CREATE VIEW v AS SELECT b.auction FROM bids b ASOF JOIN items i MATCH_CONDITION (NEAREST(b.price, i.price)) ON i.price >= b.bidder;
-- expect error:
--   unsupported at 1:57: `i.price >= b.bidder` in an as-of join to the nearest row
--   hint: bound it by a plain length: b.ts BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts + INTERVAL '5' MINUTE

-- case: NEAREST elsewhere
CREATE VIEW v AS SELECT NEAREST(price, 5) AS n FROM bids;
-- expect error:
--   statement_refused at 1:25: the function `nearest` cannot be used
--   hint: write a ASOF JOIN b MATCH_CONDITION (NEAREST(a.ts, b.ts)) ON a.id = b.id

-- case: NEAREST in a question
SELECT h.n FROM hot h ASOF JOIN items i MATCH_CONDITION (NEAREST(h.n, i.price)) ON h.auction = i.id;
-- expect error:
--   statement_refused: NEAREST works in a view, not in a query
--   hint: CREATE VIEW v AS SELECT ..., and SELECT from that

-- case: MATCH_CONDITION with USING in a question
SELECT h.n FROM hot h ASOF JOIN items i MATCH_CONDITION (h.n >= i.price) USING (id);
-- expect error:
--   statement_refused: MATCH_CONDITION with USING works in a view, not in a query
--   hint: write ON a.id = b.id

-- case: A changelog as a question
SELECT * FROM CHANGELOG OF hot;
-- expect error:
--   statement_refused: a changelog can be used in a view, not in a query: it contains future changes
--   hint: CREATE VIEW changes AS SELECT * FROM CHANGELOG OF v; SUBSCRIBE TO v keeps nothing

-- case: A changelog of rows that have one of its columns
CREATE VIEW v AS SELECT * FROM CHANGELOG OF (SELECT auction, price AS op FROM bids) AS c;
-- expect error:
--   schema_error at 1:32: `op` is already a column of a changelog
--   hint: name each column: FROM CHANGELOG OF v AS c(kind, epoch, changed_at, ...); in Python .changelog(op='other_name')

-- case: A changelog with too few names
CREATE VIEW v AS SELECT * FROM CHANGELOG OF hot AS c(op, epoch, at);
-- expect error:
--   schema_error at 1:32: 3 names for 5 columns

-- case: A changelog of nothing
CREATE VIEW v AS SELECT * FROM CHANGELOG OF;
-- expect error:
--   unknown_name at 1:32: there is no source, table or view `CHANGELOG`

-- case: A changelog of what is not there
CREATE VIEW v AS SELECT * FROM CHANGELOG OF nothing;
-- expect error:
--   unknown_name at 1:32: there is no source, table or view `nothing`

-- case: MATCH_CONDITION of a plain join
CREATE VIEW v AS SELECT b.auction FROM bids b JOIN clicks c MATCH_CONDITION (b.ts >= c.ts) ON b.bidder = c.bidder;
-- expect error:
--   definition_error at 1:52: MATCH_CONDITION belongs to ASOF JOIN
--   hint: write ASOF JOIN, or AND in ON

-- case: The rows around a subquery in an as-of join of it
CREATE VIEW v AS SELECT auction, (SELECT count(*) FROM clicks c ASOF JOIN items i ON c.bidder >= i.id AND i.price = b.price) AS n FROM bids b;
-- expect error:
--   unsupported at 1:86: a correlated subquery with outer columns in an outer or as-of join, or in a second relation of its FROM
--   hint: use them in its WHERE, or in the first relation of its FROM

-- case: A version of a view without a time
CREATE VIEW v AS SELECT b.auction FROM bids b JOIN hot FOR SYSTEM_TIME AS OF b.ts AS h ON b.auction = h.auction;
-- expect error:
--   unsupported at 1:52: FOR SYSTEM_TIME AS OF needs a stream of versions with an event time
--   hint: a stored table has only its current state: leave FOR SYSTEM_TIME out; or ASOF JOIN it by a column

-- case: EXCEPT of different widths
CREATE VIEW v AS SELECT auction FROM bids EXCEPT SELECT bidder, page FROM clicks;
-- expect error:
--   schema_error at 1:57: the parts of an EXCEPT have 1 and 2 columns
--   hint: select the same number of columns in both; NULL AS name fills one in

-- case: WITH RECURSIVE without UNION
CREATE VIEW v AS WITH RECURSIVE r AS (SELECT auction FROM r) SELECT auction FROM r;
-- expect error:
--   unsupported at 1:46: a recursive CTE is the initial rows UNION the rows that follow from them
--   hint: WITH RECURSIVE r AS (SELECT ... FROM edges UNION SELECT ... FROM r JOIN edges ON ...)

-- case: WITH RECURSIVE over two streams
CREATE VIEW v AS WITH RECURSIVE r AS (SELECT auction AS a FROM bids UNION SELECT r.a FROM r JOIN bids b ON r.a = b.bidder JOIN clicks c ON r.a = c.bidder) SELECT a FROM r;
-- expect error:
--   unsupported at 1:33: a loop over more than one other stream is not supported
--   hint: union them into one stream first, with a column that distinguishes them

-- case: A function in a loop that may mean something else
CREATE VIEW v AS WITH RECURSIVE r AS (SELECT channel AS a FROM bids UNION SELECT reverse(a) FROM r) SELECT a FROM r;
-- expect error:
--   unsupported at 1:82: `REVERSE(`a`)` inside a loop is not supported
--   hint: comparisons, arithmetic, CASE, CAST, coalesce, least, greatest, abs and concat are

-- case: A window function that is not there
CREATE VIEW v AS SELECT auction, stddev(price) OVER (PARTITION BY auction ORDER BY ts) AS s FROM bids;
-- expect error:
--   unsupported at 1:34: `STDDEV(price)` OVER (...) is not supported in a view
--   hint: one of: row_number, rank, dense_rank, percent_rank, cume_dist, ntile, lag, lead, sum, avg, count, min, max, first_value, last_value, nth_value

-- case: RANK without an order
CREATE VIEW v AS SELECT auction, rank() OVER (PARTITION BY auction) AS s FROM bids;
-- expect error:
--   unsupported at 1:34: rank() needs ORDER BY in its window
--   hint: rank() OVER (PARTITION BY a ORDER BY b)

-- case: A RANGE with two orders
CREATE VIEW v AS SELECT auction, sum(price) OVER (ORDER BY ts, price RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM bids;
-- expect error:
--   unsupported at 1:34: a RANGE frame needs one ORDER BY
--   hint: write ROWS in place of RANGE, or order by one column

-- case: A WINDOW that is not there
CREATE VIEW v AS SELECT auction, sum(price) OVER w AS s FROM bids;
-- expect error:
--   unsupported at 1:34: there is no WINDOW `w`
--   hint: define it after FROM and WHERE: WINDOW w AS (PARTITION BY a ORDER BY b)

-- case: UNION BY NAME
CREATE VIEW v AS SELECT auction FROM bids UNION ALL BY NAME SELECT bidder FROM bids;
-- expect error:
--   unsupported at 1:25: BY NAME is not supported in a view
--   hint: name the columns of both parts in the same order

-- case: UNION CORRESPONDING
CREATE VIEW v AS SELECT auction FROM bids UNION CORRESPONDING SELECT auction FROM bids;
-- expect error:
--   unsupported at 1:25: BY NAME is not supported in a view
--   hint: name the columns of both parts in the same order

-- case: LIMIT with PERCENT
CREATE VIEW v AS SELECT auction FROM bids ORDER BY auction LIMIT 50 PERCENT;
-- expect error:
--   unsupported at 1:66: LIMIT with PERCENT is not supported in a view
--   hint: number the rows: QUALIFY percent_rank() OVER (ORDER BY ...) < 0.1

-- case: FOR UPDATE
CREATE VIEW v AS SELECT auction FROM bids FOR UPDATE;
-- expect error:
--   unsupported at 1:25: FOR UPDATE is not supported in a view
--   hint: leave it out: a view always shows whole epochs

-- case: GROUP BY WITH TOTALS
CREATE VIEW v AS SELECT auction FROM bids GROUP BY auction WITH TOTALS;
-- expect error:
--   unsupported at 1:52: TOTALS is not supported in a view
--   hint: leave it out

-- case: posexplode
CREATE VIEW v AS SELECT auction FROM bids LATERAL VIEW posexplode(tags) t AS p, tag;
-- expect error:
--   statement_refused at 1:56: posexplode is not allowed in a query
--   hint: write CROSS JOIN UNNEST(array) WITH ORDINALITY AS t(element, number)

-- case: A version without a join
CREATE VIEW v AS SELECT auction FROM bids FOR SYSTEM_TIME AS OF ts;
-- expect error:
--   unsupported at 1:65: FOR SYSTEM_TIME AS OF is supported on the right side of a JOIN only

-- case: A join inside a join
CREATE VIEW v AS SELECT x.auction FROM bids x JOIN clicks y JOIN bids z ON z.bidder = y.bidder ON x.bidder = y.bidder;
-- expect error:
--   unsupported at 1:52: a join inside a join is not supported in a view
--   hint: write the joins one after the other, or put the inner one in a subquery: JOIN (SELECT ...) AS x

-- case: An argument that nothing takes
CREATE VIEW v AS SELECT percentile(price, 0.5, 3) AS p FROM bids;
-- expect error:
--   unsupported at 1:48: `3` is not supported here: it would be ignored
--   hint: leave it out, or write the same with another function; docs/guide/steps.md lists them

-- case: A total over no rows in a subquery about the rows around it
CREATE VIEW v AS SELECT auction FROM bids b WHERE EXISTS (SELECT count(*) FROM hot h WHERE h.auction = b.auction GROUP BY ROLLUP (n));
-- expect error:
--   unsupported at 1:66: a grouping set without keys in a correlated subquery
--   hint: leave () out: GROUPING SETS ((a, b), (a)) has no total over all rows
