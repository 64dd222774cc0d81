-- What is refused, where, why, and what to do.

-- case: An unknown column
CREATE VIEW v AS SELECT auctoin FROM bids;
-- expect error:
--   schema_error at 1:25: there is no column `auctoin`
--   hint: did you mean `auction`?

-- case: An unknown column of an alias
CREATE VIEW v AS SELECT b.auctoin FROM bids AS b;
-- expect error:
--   schema_error at 1:25: there is no column `auctoin` of `b`
--   hint: did you mean `auction`?

-- case: An unknown alias
CREATE VIEW v AS SELECT x.auction FROM bids AS b;
-- expect error:
--   schema_error at 1:25: there is no column `x`

-- case: An unknown source
CREATE VIEW v AS SELECT auction FROM bidz;
-- expect error:
--   unknown_name at 1:38: there is no source, table or view `bidz`
--   hint: did you mean `bids`?

-- case: A column that a subquery does not give
CREATE VIEW v AS SELECT price FROM (SELECT auction FROM bids);
-- expect error:
--   schema_error at 1:25: there is no column `price`

-- case: Two columns of one name
CREATE VIEW v AS SELECT auction, price AS auction FROM bids;
-- expect error:
--   definition_error at 1:34: two columns of the answer are called `auction`
--   hint: give one of them another name: ... AS other_name

-- case: No FROM
CREATE VIEW v AS SELECT 1 AS x;
-- expect error:
--   definition_error at 1:25: a view needs FROM: it is computed from a stream

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
--   definition_error at 1:67: GROUP BY 3: the answer has 2 columns

-- case: An aggregate in GROUP BY
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY count(*);
-- expect error:
--   schema_error at 1:58: an aggregate cannot be grouped by

-- case: An aggregate in WHERE
CREATE VIEW v AS SELECT auction FROM bids WHERE count(*) > 1;
-- expect error:
--   schema_error at 1:49: the aggregate `COUNT(*)` cannot stand here
--   hint: HAVING, or WHERE in a query around it, can speak of what a GROUP BY gives

-- case: An aggregate inside another
CREATE VIEW v AS SELECT max(count(*)) AS m FROM bids;
-- expect error:
--   schema_error at 1:29: an aggregate cannot stand inside another

-- case: An aggregate that is not there yet
CREATE VIEW v AS SELECT approx_count_distinct(price) AS p FROM bids;
-- expect error:
--   unsupported at 1:25: the aggregate `APPROX_COUNT_DISTINCT(price)` is not supported yet
--   hint: there are: count, count(DISTINCT), count_if, sum, avg, min, max, first, last, any_value, collect_list, variance, stddev, bool_and, bool_or

-- case: DISTINCT in sum
CREATE VIEW v AS SELECT sum(DISTINCT price) AS s FROM bids;
-- expect error:
--   unsupported at 1:25: DISTINCT in sum is not supported yet
--   hint: count(DISTINCT x) is

-- case: A column that is no condition
CREATE VIEW v AS SELECT auction FROM bids WHERE price;
-- expect error:
--   schema_error at 1:49: where needs a condition, but ``price`` is BIGINT
--   hint: compare it with something, as in `price > 100`

-- case: GROUP BY ALL
CREATE VIEW v AS SELECT auction, count(*) AS n FROM bids GROUP BY ALL;
-- expect error:
--   unsupported at 1:1: GROUP BY ALL
--   hint: name the columns

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
--   definition_error at 1:80: `price` is not the event time here
--   hint: declare it with the source: WATERMARK FOR price AS price - INTERVAL '4' SECOND

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
--   definition_error at 1:44: TUMBLE cannot be read: after the table comes the time: DESCRIPTOR(ts)
--   hint: e.g. TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)

-- case: A length that is none
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, 'soon') GROUP BY window_start;
-- expect error:
--   definition_error at 1:61: the length of a window 'soon' is not a duration
--   hint: write it like "10 seconds", "500 ms" or "1 hour 30 minutes"

-- case: A length that is a number
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, 10) GROUP BY window_start;
-- expect error:
--   definition_error at 1:61: `10` is not a length of time
--   hint: e.g. INTERVAL '10' SECOND

-- case: A window of no length
CREATE VIEW v AS SELECT count(*) AS n FROM TUMBLE(bids, ts, '0 seconds') GROUP BY window_start;
-- expect error:
--   definition_error at 1:44: window size must be longer than zero, not Duration(micros=0)
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

-- case: Sessions cut by another key
CREATE VIEW v AS SELECT channel, count(*) AS n FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, channel;
-- expect error:
--   unsupported at 1:25: sessions are cut by other columns than the rows are grouped by
--   hint: SESSION(TABLE ... PARTITION BY channel, ...)

-- case: A window function outside of its place
CREATE VIEW v AS SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) AS s FROM bids;
-- expect error:
--   unsupported at 1:25: `tumble_start` speaks of the windows of a GROUP BY, and cannot stand here

-- case: A border in WHERE
CREATE VIEW v AS SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE window_start > ts GROUP BY window_start, window_end;
-- expect error:
--   unsupported at 1:114: `window_start` can be used only behind GROUP BY window_start, window_end

-- case: A window behind a group
CREATE VIEW v AS SELECT count(*) AS n FROM hot GROUP BY TUMBLE(auction, '1 second');
-- expect error:
--   definition_error at 1:64: `auction` is not the event time here
--   hint: declare it with the source: WATERMARK FOR auction AS auction - INTERVAL '4' SECOND

-- case: Processing time in a column
CREATE VIEW v AS SELECT sensor, seen > 5 AS x FROM readings;
-- expect error:
--   unsupported at 1:33: `seen` is the time of processing, which differs from run to run
--   hint: use it as the time of a window only

-- case: EMIT without groups
CREATE VIEW v AS SELECT auction FROM bids EMIT ON CHANGE;
-- expect error:
--   definition_error at 1:25: EMIT, ALLOWED LATENESS and their like speak of the windows of a GROUP BY, and this query has none

-- case: EMIT of nothing
CREATE VIEW v AS SELECT count(*) AS n FROM bids EMIT SOMETIMES;
-- expect error:
--   definition_error at 1:54: the statement cannot be read

-- case: EMIT without an end
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT EVERY;
-- expect error:
--   definition_error at 1:76: the statement ends too early

-- case: EMIT twice
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT ON CHANGE EMIT ON CHANGE;
-- expect error:
--   definition_error at 1:89: the trigger was given already

-- case: EVERY without ROWS
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT EVERY 100;
-- expect error:
--   definition_error at 1:80: ROWS is expected here
--   hint: e.g. EVERY 100 ROWS, or EVERY INTERVAL '1' SECOND

-- case: An unknown clause
CREATE VIEW v AS SELECT count(*) AS n FROM bids GROUP BY auction EMIT ON CHANGE KEEPING;
-- expect error:
--   definition_error at 1:81: a clause of the view is expected here
--   hint: one of: DISCARDING, ACCUMULATING, RETRACTING, EMIT, ALLOWED LATENESS, RETAIN

-- case: RETAIN without a window
CREATE VIEW v AS SELECT auction, count(*) AS n FROM bids GROUP BY auction RETAIN INTERVAL '1' DAY;
-- expect error:
--   definition_error at 1:1: the view `v` has a retention but no window to measure it by
--   hint: add .window(...), or leave the retention out

-- case: RETAIN in months
CREATE VIEW v AS SELECT auction FROM bids RETAIN INTERVAL '1' MONTH;
-- expect error:
--   definition_error at 1:63: how long rows stay in MONTH has no fixed length
--   hint: write it in days

-- case: now
CREATE VIEW v AS SELECT auction FROM bids WHERE ts > now() - INTERVAL 1 HOUR;
-- expect error:
--   unsupported at 1:49: `now` cannot be used here
--   hint: use the event time; or ask with it: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: current_date without brackets
CREATE VIEW v AS SELECT auction, current_date AS d FROM bids;
-- expect error:
--   unsupported at 1:1: `current_date` cannot be used here
--   hint: use the event time; or ask with it: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: rand
CREATE VIEW v AS SELECT auction FROM bids WHERE rand() < 0.1;
-- expect error:
--   unsupported at 1:18: `rand` cannot be used here
--   hint: use the event time; or ask with it: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: input_file_name
CREATE VIEW v AS SELECT input_file_name() AS f FROM bids;
-- expect error:
--   unsupported at 1:18: `input_file_name` cannot be used here
--   hint: use the event time; or ask with it: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: reflect
CREATE VIEW v AS SELECT reflect('java.lang.System', 'exit') AS x FROM bids;
-- expect error:
--   statement_refused at 1:25: the function `reflect` cannot be used
--   hint: docs/guide/sql.md lists what can be called

-- case: An unknown function
CREATE VIEW v AS SELECT auction, frobnicate(price) AS p FROM bids;
-- expect error:
--   statement_refused at 1:34: the function `frobnicate` cannot be used
--   hint: docs/guide/sql.md lists what can be called

-- case: stack
CREATE VIEW v AS SELECT stack(2, 1, 2) AS x FROM bids;
-- expect error:
--   unsupported at 1:25: `stack` makes several rows of one, and cannot stand here
--   hint: alone in SELECT, explode(tags) AS tag can; or FROM ... LATERAL VIEW explode(tags) t AS tag

-- case: explode inside an expression
CREATE VIEW v AS SELECT concat(explode(tags), '!') AS x FROM bids;
-- expect error:
--   unsupported at 1:25: `explode` makes several rows of one, and cannot stand here
--   hint: alone in SELECT, explode(tags) AS tag can; or FROM ... LATERAL VIEW explode(tags) t AS tag

-- case: Two explodes
CREATE VIEW v AS SELECT explode(tags) AS a, explode(tags) AS b FROM bids;
-- expect error:
--   unsupported at 1:45: two explode(...) in one SELECT

-- case: Elements without a name
CREATE VIEW v AS SELECT auction FROM bids LATERAL VIEW explode(tags);
-- expect error:
--   definition_error at 1:56: the elements need one name
--   hint: e.g. LATERAL VIEW explode(tags) t AS tag, or CROSS JOIN UNNEST(tags) AS t(tag)

-- case: Elements with a name that is taken
CREATE VIEW v AS SELECT auction FROM bids LATERAL VIEW explode(tags) t AS price;
-- expect error:
--   schema_error at 1:64: there is a column `price` already
--   hint: give the elements another name

-- case: A subquery in WHERE
CREATE VIEW v AS SELECT auction FROM bids WHERE price > (SELECT max(n) FROM hot);
-- expect error:
--   unsupported at 1:65: a subquery can stand in FROM only, for now
--   hint: make a view of it; docs/limits.md lists what else cannot be done

-- case: IN with a subquery
CREATE VIEW v AS SELECT auction FROM bids WHERE auction IN (SELECT id FROM items);
-- expect error:
--   unsupported at 1:68: a subquery can stand in FROM only, for now
--   hint: make a view of it; docs/limits.md lists what else cannot be done

-- case: A join of two streams
CREATE VIEW v AS SELECT b.auction FROM bids b JOIN clicks c ON b.bidder = c.bidder;
-- expect error:
--   unsupported at 1:52: a join of two streams is not supported yet
--   hint: a join to a stored table (CREATE TABLE) is; docs/limits.md lists the rest

-- case: A join of a stream with itself
CREATE VIEW v AS SELECT a.auction FROM bids a, bids b WHERE a.auction = b.auction;
-- expect error:
--   unsupported at 1:48: a join of two streams is not supported yet
--   hint: a join to a stored table (CREATE TABLE) is; docs/limits.md lists the rest

-- case: A join to a view
CREATE VIEW v AS SELECT b.auction FROM bids b JOIN hot h ON h.auction = b.auction;
-- expect error:
--   unsupported at 1:52: a join of two streams is not supported yet
--   hint: a join to a stored table (CREATE TABLE) is; docs/limits.md lists the rest

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
--   unsupported at 1:66: RIGHT JOIN to a stored table

-- case: MATCH_RECOGNIZE
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (PATTERN (a b));
-- expect error:
--   unsupported at 1:37: MATCH_RECOGNIZE is not supported yet

-- case: A view over a table alone
CREATE VIEW v AS SELECT name FROM items;
-- expect error:
--   unsupported at 1:35: a live view over the stored table `items` alone is not supported yet
--   hint: join a stream to it, or ask: SELECT ... FROM items

-- case: A view of itself
CREATE VIEW v AS SELECT auction FROM v;
-- expect error:
--   definition_error at 1:38: `v` is defined by itself

-- case: History in a view
CREATE VIEW v AS SELECT auction FROM HISTORY OF bids;
-- expect error:
--   unsupported at 1:38: FROM HISTORY OF is for questions, not for views

-- case: EXCEPT
CREATE VIEW v AS SELECT auction FROM bids EXCEPT SELECT bidder FROM bids;
-- expect error:
--   unsupported at 1:25: EXCEPT is not supported in a view yet

-- case: UNION of different widths
CREATE VIEW v AS SELECT auction FROM bids UNION ALL SELECT bidder, page FROM clicks;
-- expect error:
--   schema_error at 1:60: the parts of a UNION have 1 and 2 columns

-- case: WITH RECURSIVE
CREATE VIEW v AS WITH RECURSIVE r AS (SELECT auction FROM bids) SELECT auction FROM r;
-- expect error:
--   unsupported at 1:33: WITH RECURSIVE is not supported yet

-- case: ORDER BY without LIMIT
CREATE VIEW v AS SELECT auction FROM bids ORDER BY price;
-- expect error:
--   unsupported at 1:52: a view has no order of its own
--   hint: order when you ask: SELECT ... FROM view ORDER BY ...

-- case: LIMIT without ORDER BY
CREATE VIEW v AS SELECT auction FROM bids LIMIT 5;
-- expect error:
--   unsupported at 1:49: LIMIT without ORDER BY would keep any rows
--   hint: add ORDER BY

-- case: OFFSET
CREATE VIEW v AS SELECT auction FROM bids ORDER BY price LIMIT 5 OFFSET 2;
-- expect error:
--   unsupported at 1:73: OFFSET in a view

-- case: LIMIT of nothing
CREATE VIEW v AS SELECT auction FROM bids ORDER BY price LIMIT 0;
-- expect error:
--   definition_error at 1:52: a bound below 1 lets no row through

-- case: LIMIT of an expression
CREATE VIEW v AS SELECT auction FROM bids ORDER BY price LIMIT 1 + 1;
-- expect error:
--   definition_error at 1:64: LIMIT needs a whole number

-- case: ROW_NUMBER without a bound
CREATE VIEW v AS SELECT auction, ROW_NUMBER() OVER (ORDER BY price) AS r FROM bids;
-- expect error:
--   unsupported at 1:25: the numbers of all rows (`r`) cannot be kept up to date
--   hint: bound them in the query around: SELECT ... FROM (...) WHERE r <= 10

-- case: RANK
CREATE VIEW v AS SELECT * FROM (SELECT auction, RANK() OVER (ORDER BY price) AS r FROM bids) WHERE r <= 1;
-- expect error:
--   unsupported at 1:49: `RANK() OVER (ORDER BY price)` is not supported in a view yet
--   hint: ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) is

-- case: A sum OVER rows
CREATE VIEW v AS SELECT auction, sum(price) OVER (PARTITION BY auction) AS s FROM bids;
-- expect error:
--   unsupported at 1:34: `SUM(price) OVER (PARTITION BY auction)` is not supported in a view yet
--   hint: ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) is

-- case: QUALIFY
CREATE VIEW v AS SELECT auction FROM bids QUALIFY ROW_NUMBER() OVER (ORDER BY price) <= 1;
-- expect error:
--   unsupported at 1:25: QUALIFY is not supported in a view

-- case: TABLESAMPLE
CREATE VIEW v AS SELECT auction FROM bids TABLESAMPLE (5 ROWS);
-- expect error:
--   statement_refused at 1:56: `TABLESAMPLE (5 ROWS)` is not allowed in a query

-- case: A hint
CREATE VIEW v AS SELECT /*+ BROADCAST(bids) */ auction FROM bids;
-- expect error:
--   unsupported at 1:48: a hint is not supported in a view

-- case: A condition that is none
CREATE VIEW v AS SELECT auction FROM bids WHERE price + 1;
-- expect error:
--   schema_error at 1:49: where needs a condition, but ``price` + 1` is BIGINT
--   hint: compare it with something, as in `price > 100`

-- case: A path as a source
CREATE VIEW v AS SELECT * FROM parquet.`/etc/passwd`;
-- expect error:
--   statement_refused at 1:32: `parquet.`/etc/passwd``: name a view, table or source without a schema or path

-- case: A name that is taken
CREATE TABLE bids (a INT);
-- expect error:
--   definition_error: `bids` is the name of a source already

-- case: A name that is none
CREATE VIEW `a b` AS SELECT auction FROM bids;
-- expect error:
--   definition_error at 1:13: 'a b' is not a good name for a view
--   hint: use letters, digits and _, beginning with a letter, at most 63 characters

-- case: An option that is none
CREATE VIEW v WITH (speed = 5) AS SELECT auction FROM bids;
-- expect error:
--   definition_error at 1:1: a view has no option `speed`
--   hint: options are: panes, start, flow, retain

-- case: A place to begin that is none
CREATE VIEW v WITH (start = 'tomorrow') AS SELECT auction FROM bids;
-- expect error:
--   definition_error at 1:1: start = 'tomorrow' is not a place to begin
--   hint: 'earliest', 'now', or a time: '2026-01-01T00:00:00Z'

-- case: A type that is none
CREATE TABLE t (a BIGINTT);
-- expect error:
--   schema_error at 1:19: `BIGINTT` is not a type
--   hint: e.g. BIGINT, DECIMAL(10, 2) or ARRAY<STRING>

-- case: A type with more behind it
CREATE TABLE t (a BIGINT DEFAULT 5);
-- expect error:
--   schema_error at 1:19: `BIGINT DEFAULT 5` is not a type
--   hint: e.g. BIGINT, DECIMAL(10, 2) or ARRAY<STRING>

-- case: A column without a type
CREATE TABLE t (a, b INT);
-- expect error:
--   definition_error at 1:18: the type of `a` is expected here
--   hint: e.g. BIGINT, DECIMAL(10, 2) or ARRAY<STRING>

-- case: A table without columns
CREATE TABLE t ();
-- expect error:
--   definition_error at 1:17: at least one column is expected here

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
--   statement_refused at 1:1: PRAGMA is not a statement of Millstream
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

-- case: A statement that ends too early
CREATE VIEW v AS;
-- expect error:
--   definition_error at 1:17: a SELECT is expected here

-- case: A bracket too few
CREATE VIEW v AS SELECT (auction FROM bids;
-- expect error:
--   definition_error at 1:34: the statement cannot be read

-- case: A quote too few
CREATE VIEW v AS SELECT 'auction FROM bids;
-- expect error:
--   definition_error: the text cannot be read
--   hint: is a quote left open?

-- case: An epoch that is none
SUBSCRIBE TO hot AS OF EPOCH yesterday;
-- expect error:
--   definition_error at 1:30: the epoch, a whole number, is expected here

-- case: SHOW of nothing
SHOW VIEW;
-- expect error:
--   definition_error at 1:6: what to show is expected here
--   hint: did you mean VIEWS?

-- case: UPDATE with another table
UPDATE items SET price = 1 FROM hot;
-- expect error:
--   unsupported at 1:1: UPDATE takes one table, SET and WHERE, and no more

-- case: DELETE with LIMIT
DELETE FROM items LIMIT 1;
-- expect error:
--   unsupported at 1:1: DELETE takes one table, WHERE, and no more

-- case: UPDATE with a subquery
UPDATE items SET price = (SELECT 1);
-- expect error:
--   unsupported at 1:34: only columns of the table itself can stand here

-- case: INSERT into what is no column
INSERT INTO items (id, 5) VALUES (1, 2);
-- expect error:
--   definition_error at 1:24: a name for a column is expected here

-- case: INSERT without values
INSERT INTO items VALUES;
-- expect error:
--   definition_error at 1:25: ( is expected here

-- case: A question to a source
SELECT * FROM bids;
-- expect error:
--   view_not_found: there is no view or table `bids`

-- case: A question with a function that reads files
SELECT * FROM read_csv('/etc/passwd');
-- expect error:
--   statement_refused at 1:15: `READ_CSV('/etc/passwd')` is not allowed in a query

-- case: Too deep
CREATE VIEW v AS SELECT (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))) AS x FROM bids;
-- expect error:
--   statement_refused at 1:225: more than 200 brackets inside one another

-- case: ORDER BY a number that is too great
CREATE VIEW v AS SELECT auction FROM bids ORDER BY 2 LIMIT 1;
-- expect error:
--   definition_error at 1:52: ORDER BY 2: the answer has 1 columns

-- case: Types as functions inside one another
CREATE VIEW v AS SELECT date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(date(ts)))))))))))))))))))))))))))))) AS x FROM bids;
-- expect error:
--   statement_refused at 1:18: too many parts of the statement stand inside one another
--   hint: split it: a view can read from another view

-- case: Many joins without ON
CREATE VIEW v AS SELECT auction FROM bids JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items JOIN items;
-- expect error:
--   statement_refused at 1:18: too many parts of the statement stand inside one another
--   hint: split it: a view can read from another view

-- case: A punctuation that cannot be read
CREATE SOURCE s (a INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM LOG('s') WITH (punctuation = 'a = (');
-- expect error:
--   definition_error at 1:5: the statement cannot be read
