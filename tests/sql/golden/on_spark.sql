-- What only Spark computes: functions of its own, stored tables.
-- given bids: {"auction": 1, "bidder": 10, "price": 120, "channel": "web", "tags": ["old", "map"], "ts": "2026-01-01T00:00:01Z"}
-- given bids: {"auction": 1, "bidder": 11, "price": 250, "channel": "app", "tags": ["old"], "ts": "2026-01-01T00:00:03Z"}
-- given bids: {"auction": 2, "bidder": 10, "price": 90, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:02Z"}
-- given clicks: {"bidder": 10, "page": "/a/b", "home": {"city": "Bern", "zip": 3000}, "m": null, "ts": "2026-01-01T00:00:05Z"}
-- epoch
-- given bids: {"auction": 3, "bidder": 12, "price": null, "channel": null, "tags": null, "ts": "2026-01-01T00:00:08Z"}
-- given bids: {"auction": 1, "bidder": 10, "price": 250, "channel": "web", "tags": ["new"], "ts": "2026-01-01T00:00:06Z"}
-- given clicks: {"bidder": 13, "page": null, "home": null, "m": null, "ts": "2026-01-01T00:00:30Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 11, "price": 40, "channel": "app", "tags": ["map", "map"], "ts": "2026-01-01T00:00:21Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 12, "price": 70, "channel": "web", "tags": ["late"], "ts": "2026-01-01T00:00:04Z"}

-- case: A join to a stored table
CREATE VIEW a_join_to_a_stored_table AS SELECT b.auction, i.name FROM bids b JOIN items i ON b.auction = i.id WHERE b.price > 100;
-- expect rows a_join_to_a_stored_table:
--   {"auction": 1, "name": "violin"}
--   {"auction": 1, "name": "violin"}
--   {"auction": 1, "name": "violin"}

-- case: An outer join to a stored table
CREATE VIEW an_outer_join_to_a_stored_table AS SELECT b.auction, b.bidder, i.name FROM bids b LEFT JOIN items i ON b.auction = i.id;
-- expect rows an_outer_join_to_a_stored_table:
--   {"auction": 1, "bidder": 10, "name": "violin"}
--   {"auction": 1, "bidder": 10, "name": "violin"}
--   {"auction": 1, "bidder": 11, "name": "violin"}
--   {"auction": 2, "bidder": 10, "name": "clock"}
--   {"auction": 2, "bidder": 11, "name": "clock"}
--   {"auction": 2, "bidder": 12, "name": "clock"}
--   {"auction": 3, "bidder": 12, "name": null}

-- case: A join by an expression
CREATE VIEW a_join_by_an_expression AS SELECT auction, name FROM bids JOIN items ON id = mod(auction, 2) WHERE channel = 'app';
-- expect rows a_join_by_an_expression:
--   {"auction": 1, "name": "violin"}

-- case: A join with columns of one name
CREATE VIEW a_join_with_columns_of_one_name AS SELECT b.auction, b.price AS bid, i.price AS asked FROM bids b JOIN items i ON i.id = b.auction WHERE b.price > i.price;
-- expect rows a_join_with_columns_of_one_name:
--   {"auction": 1, "bid": 120, "asked": 50}
--   {"auction": 1, "bid": 250, "asked": 50}
--   {"auction": 1, "bid": 250, "asked": 50}

-- case: Groups of joined rows
CREATE VIEW groups_of_joined_rows AS SELECT i.name, count(*) AS n, sum(b.price) AS s FROM bids b JOIN items i ON i.id = b.auction GROUP BY i.name;
-- expect rows groups_of_joined_rows:
--   {"name": "clock", "n": 3, "s": 200}
--   {"name": "violin", "n": 3, "s": 620}

-- case: A join in windows
CREATE VIEW a_join_in_windows AS SELECT i.name, TUMBLE_START(ts, INTERVAL '10' SECOND) AS s, count(*) AS n FROM bids b JOIN items i ON i.id = b.auction GROUP BY i.name, TUMBLE(ts, INTERVAL '10' SECOND);
-- expect rows a_join_in_windows:
--   {"name": "clock", "s": "2026-01-01 00:00:00", "n": 1}
--   {"name": "clock", "s": "2026-01-01 00:00:20", "n": 1}
--   {"name": "violin", "s": "2026-01-01 00:00:00", "n": 3}

-- case: Dates and times
CREATE VIEW dates_and_times AS SELECT date_format(ts, 'HH:mm:ss') AS t, year(ts) AS y, date_trunc('MINUTE', ts) AS m FROM bids WHERE auction = 2;
-- expect rows dates_and_times:
--   {"t": "00:00:02", "y": 2026, "m": "2026-01-01 00:00:00"}
--   {"t": "00:00:04", "y": 2026, "m": "2026-01-01 00:00:00"}
--   {"t": "00:00:21", "y": 2026, "m": "2026-01-01 00:00:00"}

-- case: Text
CREATE VIEW text AS SELECT initcap(channel) AS c, lpad(channel, 5, '*') AS l, get(split(channel, 'e'), 1) AS s, regexp_extract(channel, '(.)$', 1) AS r FROM bids WHERE price = 250;
-- expect rows text:
--   {"c": "App", "l": "**app", "s": null, "r": "p"}
--   {"c": "Web", "l": "**web", "s": "b", "r": "b"}

-- case: Arrays and lambdas
CREATE VIEW arrays_and_lambdas AS SELECT array_distinct(tags) AS d, filter(tags, t -> t <> 'old') AS f, transform(tags, t -> upper(t)) AS u, size(tags) AS n FROM bids;
-- expect rows arrays_and_lambdas:
--   {"d": ["late"], "f": ["late"], "u": ["LATE"], "n": 1}
--   {"d": ["map"], "f": ["map", "map"], "u": ["MAP", "MAP"], "n": 2}
--   {"d": ["new"], "f": ["new"], "u": ["NEW"], "n": 1}
--   {"d": ["old", "map"], "f": ["map"], "u": ["OLD", "MAP"], "n": 2}
--   {"d": ["old"], "f": [], "u": ["OLD"], "n": 1}
--   {"d": [], "f": [], "u": [], "n": 0}
--   {"d": null, "f": null, "u": null, "n": null}

-- case: Structs and JSON
CREATE VIEW structs_and_json AS SELECT to_json(named_struct('a', auction, 'p', price)) AS j, get_json_object('{"x": 5}', '$.x') AS x FROM bids WHERE auction = 3;
-- expect rows structs_and_json:
--   {"j": "{\"a\":3}", "x": "5"}

-- case: Decimals
CREATE VIEW decimals AS SELECT auction, sum(CAST(price AS DECIMAL(10, 2)) * 1.10) AS s FROM bids GROUP BY auction;
-- expect rows decimals:
--   {"auction": 1, "s": 682.0}
--   {"auction": 2, "s": 220.0}
--   {"auction": 3, "s": null}

-- case: A key by Spark's functions
CREATE VIEW a_key_by_spark_s_functions AS SELECT date_format(ts, 'ss') AS second, count(*) AS n FROM bids GROUP BY date_format(ts, 'ss');
-- expect rows a_key_by_spark_s_functions:
--   {"second": "01", "n": 1}
--   {"second": "02", "n": 1}
--   {"second": "03", "n": 1}
--   {"second": "04", "n": 1}
--   {"second": "06", "n": 1}
--   {"second": "08", "n": 1}
--   {"second": "21", "n": 1}

-- case: Behind groups
CREATE VIEW behind_groups AS SELECT auction, concat_ws('-', auction, max(channel)) AS t FROM bids GROUP BY auction HAVING length(max(channel)) = 3;
-- expect rows behind_groups:
--   {"auction": 1, "t": "1-web"}
--   {"auction": 2, "t": "2-web"}

-- case: Between two stages
CREATE VIEW between_two_stages AS SELECT k, max(n) AS m FROM (SELECT concat(channel, '!') AS k, n FROM (SELECT channel, auction, count(*) AS n FROM bids GROUP BY channel, auction)) GROUP BY k;
-- expect rows between_two_stages:
--   {"k": "app!", "m": 1}
--   {"k": "web!", "m": 2}
--   {"k": null, "m": 1}

-- case: Posed in GROUPING SETS
CREATE VIEW posed_in_grouping_sets AS SELECT upper(channel) AS c, auction, count(*) AS n FROM bids GROUP BY GROUPING SETS ((upper(channel)), (auction));
-- expect rows posed_in_grouping_sets:
--   {"c": "APP", "auction": null, "n": 2}
--   {"c": "WEB", "auction": null, "n": 4}
--   {"c": null, "auction": 1, "n": 3}
--   {"c": null, "auction": 2, "n": 3}
--   {"c": null, "auction": 3, "n": 1}
--   {"c": null, "auction": null, "n": 1}

-- case: Spark's window as a struct
CREATE VIEW spark_s_window_as_a_struct AS SELECT window(ts, '10 seconds') AS w, count(*) AS n FROM bids GROUP BY window(ts, '10 seconds');
-- expect rows spark_s_window_as_a_struct:
--   {"w": {"start": "2026-01-01 00:00:00", "end": "2026-01-01 00:00:10"}, "n": 5}
--   {"w": {"start": "2026-01-01 00:00:20", "end": "2026-01-01 00:00:30"}, "n": 1}

-- case: A session with a gap of its own
CREATE VIEW a_session_with_a_gap_of_its_own AS SELECT bidder, SESSION_START(ts, make_dt_interval(0, 0, 0, 2 + auction)) AS s, count(*) AS n FROM bids GROUP BY bidder, SESSION(ts, make_dt_interval(0, 0, 0, 2 + auction));
-- expect rows a_session_with_a_gap_of_its_own:
--   {"bidder": 10, "s": "2026-01-01 00:00:01", "n": 3}
--   {"bidder": 11, "s": "2026-01-01 00:00:03", "n": 1}
--   {"bidder": 11, "s": "2026-01-01 00:00:21", "n": 1}
--   {"bidder": 12, "s": "2026-01-01 00:00:08", "n": 1}

-- case: TIMESTAMPDIFF
CREATE VIEW timestampdiff AS SELECT timestampdiff(SECOND, TIMESTAMP '2026-01-01 00:00:00', ts) AS s FROM bids WHERE channel = 'app';
-- expect rows timestampdiff:
--   {"s": 21}
--   {"s": 3}

-- case: GROUPING SETS in windows
CREATE VIEW grouping_sets_in_windows AS SELECT window_start, channel, auction, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY GROUPING SETS ((window_start, window_end, channel), (window_start, window_end, auction));
-- expect rows grouping_sets_in_windows:
--   {"window_start": "2026-01-01 00:00:00", "channel": "app", "auction": null, "n": 1}
--   {"window_start": "2026-01-01 00:00:00", "channel": "web", "auction": null, "n": 3}
--   {"window_start": "2026-01-01 00:00:00", "channel": null, "auction": 1, "n": 3}
--   {"window_start": "2026-01-01 00:00:00", "channel": null, "auction": 2, "n": 1}
--   {"window_start": "2026-01-01 00:00:00", "channel": null, "auction": 3, "n": 1}
--   {"window_start": "2026-01-01 00:00:00", "channel": null, "auction": null, "n": 1}
--   {"window_start": "2026-01-01 00:00:20", "channel": "app", "auction": null, "n": 1}
--   {"window_start": "2026-01-01 00:00:20", "channel": null, "auction": 2, "n": 1}

-- case: ROLLUP beside a window
CREATE VIEW rollup_beside_a_window AS SELECT window_start, channel, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, ROLLUP (channel);
-- expect rows rollup_beside_a_window:
--   {"window_start": "2026-01-01 00:00:00", "channel": "app", "n": 1}
--   {"window_start": "2026-01-01 00:00:00", "channel": "web", "n": 3}
--   {"window_start": "2026-01-01 00:00:00", "channel": null, "n": 1}
--   {"window_start": "2026-01-01 00:00:00", "channel": null, "n": 5}
--   {"window_start": "2026-01-01 00:00:20", "channel": "app", "n": 1}
--   {"window_start": "2026-01-01 00:00:20", "channel": null, "n": 1}

-- case: Formats
CREATE VIEW formats AS SELECT DISTINCT to_char(ts, 'yyyy/MM') AS c, date_format(ts, 'yyyy-MM') AS d FROM bids;
-- expect rows formats:
--   {"c": "2026/01", "d": "2026-01"}
