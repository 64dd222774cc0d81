-- MATCH_RECOGNIZE: patterns over rows in the order of event time; changes, epoch by epoch, and what is refused.
-- given bids: {"auction": 1, "bidder": 10, "price": 100, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:01Z"}
-- given bids: {"auction": 1, "bidder": 11, "price": 80, "channel": "app", "tags": [], "ts": "2026-01-01T00:00:03Z"}
-- given bids: {"auction": 2, "bidder": 10, "price": 90, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:02Z"}
-- given clicks: {"bidder": 10, "page": "/a", "home": null, "m": null, "ts": "2026-01-01T00:00:00Z"}
-- epoch
-- given bids: {"auction": 1, "bidder": 10, "price": 60, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:08Z"}
-- given bids: {"auction": 2, "bidder": 12, "price": null, "channel": null, "tags": null, "ts": "2026-01-01T00:00:06Z"}
-- given bids: {"auction": 1, "bidder": 10, "price": 150, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:09Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 11, "price": 40, "channel": "app", "tags": [], "ts": "2026-01-01T00:00:21Z"}
-- given bids: {"auction": 1, "bidder": 13, "price": 170, "channel": "app", "tags": [], "ts": "2026-01-01T00:00:22Z"}
-- given clicks: {"bidder": 13, "page": "/b", "home": null, "m": null, "ts": "2026-01-01T00:02:30Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 12, "price": 70, "channel": "web", "tags": [], "ts": "2026-01-01T00:01:04Z"}
-- epoch
-- given bids: {"auction": 3, "bidder": 12, "price": 1, "channel": "web", "tags": [], "ts": "2026-01-01T00:05:00Z"}
-- epoch

-- case: A fall and a rise
CREATE VIEW fall_and_rise AS SELECT * FROM bids MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY ts
  MEASURES a.price AS was, LAST(down.price) AS low, COUNT(down.*) AS n, up.price - LAST(down.price) AS rise, up.ts AS at, MATCH_NUMBER() AS num
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (a down+ up)
  DEFINE down AS price < PREV(price), up AS price > PREV(price)
) AS m;
-- expect changes fall_and_rise:
--   3 +I {"auction": 1, "was": 100, "low": 60, "n": 2, "rise": 90, "at": "2026-01-01 00:00:09", "num": 1}

-- case: All rows, with running and final measures
CREATE VIEW all_rows AS SELECT auction, price, cl, n, total, whole FROM bids MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY ts
  MEASURES CLASSIFIER() AS cl, COUNT(*) AS n, SUM(down.price) AS total, FINAL SUM(down.price) AS whole
  ALL ROWS PER MATCH
  PATTERN (a {- down -} down* up)
  DEFINE down AS price < PREV(price), up AS price > PREV(price)
);
-- expect changes all_rows:
--   3 +I {"auction": 1, "price": 100, "cl": "a", "n": 1, "total": null, "whole": 140}
--   3 +I {"auction": 1, "price": 150, "cl": "up", "n": 4, "total": 140, "whole": 140}
--   3 +I {"auction": 1, "price": 60, "cl": "down", "n": 3, "total": 140, "whole": 140}

-- case: A condition over another variable, and an alternation
CREATE VIEW dearer AS SELECT m.auction, m.first_price, m.next_price, m.kind FROM bids AS b MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY ts, price DESC
  MEASURES a.price AS first_price, LAST(both.price) AS next_price, CLASSIFIER() AS kind
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (a x*? (b | c))
  SUBSET both = (b, c)
  DEFINE b AS b.price > a.price, c AS c.price * 2 < a.price
) m WHERE m.first_price > 0;
-- expect changes dearer:
--   3 +I {"auction": 1, "first_price": 100, "next_price": 150, "kind": "b"}
--   3 +I {"auction": 1, "first_price": 60, "next_price": 150, "kind": "b"}
--   3 +I {"auction": 1, "first_price": 80, "next_price": 150, "kind": "b"}
--   4 +I {"auction": 1, "first_price": 150, "next_price": 170, "kind": "b"}
--   4 +I {"auction": 2, "first_price": 90, "next_price": 40, "kind": "c"}
--   5 +I {"auction": 2, "first_price": 40, "next_price": 70, "kind": "b"}

-- case: Time-outs as rows
CREATE VIEW slow AS SELECT * FROM bids MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY ts
  MEASURES a.ts AS began, b.price AS price
  PATTERN (a x* b) WITHIN INTERVAL '10' SECOND EMIT TIMEOUTS
  DEFINE x AS x.price <= 100, b AS b.price > 100
);
-- expect changes slow:
--   3 +I {"auction": 1, "began": "2026-01-01 00:00:01", "price": 150, "timed_out": false}
--   3 +I {"auction": 2, "began": "2026-01-01 00:00:06", "price": null, "timed_out": true}
--   4 +I {"auction": 1, "began": "2026-01-01 00:00:22", "price": null, "timed_out": true}
--   4 +I {"auction": 2, "began": "2026-01-01 00:00:21", "price": null, "timed_out": true}
--   5 +I {"auction": 2, "began": "2026-01-01 00:01:04", "price": null, "timed_out": true}

-- case: An event cloud of two sources
CREATE VIEW cloud AS WITH events AS (
  SELECT bidder, 'click' AS what, page AS said, ts FROM clicks
  UNION ALL SELECT bidder, 'bid' AS what, channel AS said, ts FROM bids)
SELECT bidder, page, bids, ended FROM events MATCH_RECOGNIZE (
  PARTITION BY bidder ORDER BY ts
  MEASURES c.said AS page, COUNT(b.*) AS bids, LAST(b.ts) AS ended
  PATTERN (c b{1,2}?)
  DEFINE c AS what = 'click', b AS what = 'bid'
);
-- expect changes cloud:
--   3 +I {"bidder": 10, "page": "/a", "bids": 1, "ended": "2026-01-01 00:00:01"}

-- case: In any order
CREATE VIEW any_order AS SELECT auction, web, app FROM bids MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY ts MEASURES w.price AS web, p.price AS app
  AFTER MATCH SKIP TO LAST p PATTERN (PERMUTE(w, p)) DEFINE w AS channel = 'web', p AS channel = 'app');
-- expect changes any_order:
--   2 +I {"auction": 1, "web": 100, "app": 80}
--   3 +I {"auction": 1, "web": 60, "app": 80}
--   4 +I {"auction": 1, "web": 150, "app": 170}
--   5 +I {"auction": 2, "web": 70, "app": 40}

-- case: Groups behind a pattern
CREATE VIEW per_auction AS SELECT auction, count(*) AS falls FROM bids MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY ts MEASURES b.price AS p AFTER MATCH SKIP TO NEXT ROW
  PATTERN (a b) DEFINE b AS price < PREV(price)) GROUP BY auction;
-- expect changes per_auction:
--   2 +I {"auction": 1, "falls": 1}
--   3 +U {"auction": 1, "falls": 2}
--   3 -U {"auction": 1, "falls": 1}

-- case: A pattern over windows that are over
CREATE VIEW busier AS WITH counts AS (
  SELECT window_end, channel, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, channel)
SELECT * FROM counts MATCH_RECOGNIZE (
  PARTITION BY channel ORDER BY window_end MEASURES a.n AS was, b.n AS became, b.window_end AS at
  AFTER MATCH SKIP TO FIRST b PATTERN (a b) DEFINE b AS n <> PREV(n));
-- expect changes busier:
--   4 +I {"channel": "app", "was": 1, "became": 2, "at": "2026-01-01 00:00:25"}
--   5 +I {"channel": "web", "was": 2, "became": 1, "at": "2026-01-01 00:01:05"}

-- case: No pattern
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES price AS p DEFINE a AS price > 1);
-- expect error:
--   definition_error at 1:37: PATTERN is missing
--   hint: e.g. PATTERN (a b+)

-- case: No order
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (MEASURES a.price AS p PATTERN (a) DEFINE a AS price > 1);
-- expect error:
--   definition_error at 1:37: ORDER BY is missing
--   hint: the event time

-- case: Another order than that of time
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY price MEASURES a.price AS p PATTERN (a) DEFINE a AS price > 1);
-- expect error:
--   unsupported at 1:37: `price` has no watermark here
--   hint: declare it with the source (event_time=..., in SQL WATERMARK FOR ...), and keep its column

-- case: Downwards
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts DESC MEASURES a.price AS p PATTERN (a) DEFINE a AS price > 1);
-- expect error:
--   unsupported at 1:63: rows are matched in the order of event time, upwards
--   hint: ORDER BY ts; other columns can follow, for rows of one time

-- case: A pattern that nothing fulfils too
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a*) DEFINE a AS price > 1);
-- expect error:
--   unsupported at 1:37: a pattern that can match no row at all is not supported
--   hint: require at least one row, as in A+ instead of A*

-- case: A repeated part that may be empty
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a (b?)*) DEFINE a AS price > 1);
-- expect error:
--   unsupported at 1:37: a repeated part of a pattern that may be empty is not supported
--   hint: repeat a part with at least one row in it: (A | B)* instead of (A? B?)*

-- case: A variable that is not there
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES z.price AS p PATTERN (a b) DEFINE b AS price > 1);
-- expect error:
--   schema_error at 1:37: `z` is not a variable of the pattern

-- case: A condition of no variable
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) DEFINE z AS price > 1);
-- expect error:
--   definition_error at 1:114: there is a condition for `z`, which is not a variable of the pattern

-- case: A column that is not there
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.prise AS p PATTERN (a b) DEFINE b AS price > 1);
-- expect error:
--   schema_error at 1:75: there is no column `prise`
--   hint: did you mean `price`?

-- case: No condition
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) DEFINE b AS price + 1);
-- expect error:
--   schema_error at 1:114: a variable needs a condition, but this is BIGINT
--   hint: compare it with something, as in `price > 100`

-- case: A function over rows of two variables
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) DEFINE b AS concat(b.channel, a.channel) = 'x');
-- expect error:
--   unsupported at 1:114: `CONCAT(b.channel, a.channel)` over rows of several variables is not supported
--   hint: compute it for each row; comparisons, arithmetic, AND, OR, NOT, IN, BETWEEN, CASE, abs, coalesce, least and greatest can combine values of several rows

-- case: Rows of two variables in one navigation
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES SUM(a.price + b.price) AS p PATTERN (a b) DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:75: `a.price + b.price` refers to rows of different variables
--   hint: FIRST, LAST, PREV, NEXT and totals take columns of one variable

-- case: A measure without a name
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price PATTERN (a b) DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:77: a measure needs a name: ... AS name

-- case: Skip to a variable that is not there
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p AFTER MATCH SKIP TO FIRST z PATTERN (a b) DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:37: `z` is not a variable of the pattern

-- case: Time-outs without a time
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) EMIT TIMEOUTS DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:37: time-outs need a limit on how long a match may take
--   hint: add WITHIN, or .within(...)

-- case: The beginning of a stream
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (^ a b) DEFINE b AS price > 1);
-- expect error:
--   unsupported at 1:97: ^ and $ in a pattern: a stream has no first and no last row

-- case: A clause that is misspelled
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATERN (a b) DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:99: a measure needs a name: ... AS name

-- case: A clause twice
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) PATTERN (b a) DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:102: PATTERN appears twice

-- case: A bracket that is open
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a (b) DEFINE b AS price > 1);
-- expect error:
--   definition_error at 1:53: this bracket is never closed
--   hint: count the brackets

-- case: A function that changes from run to run
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) DEFINE b AS price > rand());
-- expect error:
--   unsupported at 1:122: `rand` cannot be used here
--   hint: use the event time; or use it in a query: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR

-- case: A subquery in a condition
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) DEFINE b AS price > (SELECT max(price) FROM items));
-- expect error:
--   unsupported at 1:114: only an expression is allowed here

-- case: The time of processing in a condition
CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a b) DEFINE b AS ts < now());
-- expect error:
--   unsupported at 1:119: `now` cannot be used here
--   hint: e.g. WHERE ts > now() - INTERVAL '1' HOUR; or compute it in a query: SELECT now() - ts FROM view

-- case: Behind a join
CREATE VIEW v AS SELECT * FROM bids JOIN items ON bids.auction = items.id MATCH_RECOGNIZE (ORDER BY ts MEASURES a.price AS p PATTERN (a) DEFINE a AS price > 1) AS m;
-- expect error:
--   unsupported at 1:75: MATCH_RECOGNIZE after a JOIN
--   hint: make a subquery of one of them: FROM (SELECT ... FROM a JOIN b ON ...) MATCH_RECOGNIZE (...)

-- case: A question
SELECT * FROM hot MATCH_RECOGNIZE (ORDER BY n MEASURES a.n AS p PATTERN (a) DEFINE a AS n > 1);
-- expect error:
--   statement_refused: the function `match_recognize` cannot be used in a query
--   hint: functions are those of Spark SQL; CREATE FUNCTION adds your own
