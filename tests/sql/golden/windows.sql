-- Windows of all kinds, said in all ways. The last row comes too late for windows that have closed.
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

-- case: TUMBLE, the long form
CREATE VIEW tumble_the_long_form AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows tumble_the_long_form:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: TUMBLE, the short form
CREATE VIEW tumble_the_short_form AS SELECT window_start, window_end, count(*) AS n FROM TUMBLE(bids, ts, '10 seconds') GROUP BY window_start, window_end;
-- expect rows tumble_the_short_form:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: TUMBLE with names
CREATE VIEW tumble_with_names AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows tumble_with_names:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: TUMBLE with an offset
CREATE VIEW tumble_with_an_offset AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '2' SECOND)) GROUP BY window_start, window_end;
-- expect rows tumble_with_an_offset:
--   {"window_start": "2025-12-31 23:59:52", "window_end": "2026-01-01 00:00:02", "n": 1}
--   {"window_start": "2026-01-01 00:00:02", "window_end": "2026-01-01 00:00:12", "n": 4}
--   {"window_start": "2026-01-01 00:00:12", "window_end": "2026-01-01 00:00:22", "n": 1}

-- case: TUMBLE in GROUP BY
CREATE VIEW tumble_in_group_by AS SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS s, TUMBLE_END(ts, INTERVAL '10' SECOND) AS e, count(*) AS n FROM bids GROUP BY TUMBLE(ts, INTERVAL '10' SECOND);
-- expect rows tumble_in_group_by:
--   {"s": "2026-01-01 00:00:00", "e": "2026-01-01 00:00:10", "n": 5}
--   {"s": "2026-01-01 00:00:20", "e": "2026-01-01 00:00:30", "n": 1}

-- case: TUMBLE_ROWTIME
CREATE VIEW tumble_rowtime AS SELECT TUMBLE_ROWTIME(ts, INTERVAL '10' SECOND) AS t, count(*) AS n FROM bids GROUP BY TUMBLE(ts, INTERVAL '10' SECOND);
-- expect rows tumble_rowtime:
--   {"t": "2026-01-01 00:00:09.999000", "n": 5}
--   {"t": "2026-01-01 00:00:29.999000", "n": 1}

-- case: Spark's window
CREATE VIEW spark_s_window AS SELECT window.start AS s, window.end AS e, count(*) AS n FROM bids GROUP BY window(ts, '10 seconds');
-- expect rows spark_s_window:
--   {"s": "2026-01-01 00:00:00", "e": "2026-01-01 00:00:10", "n": 5}
--   {"s": "2026-01-01 00:00:20", "e": "2026-01-01 00:00:30", "n": 1}

-- case: Spark's window as a struct
CREATE VIEW spark_s_window_as_a_struct AS SELECT window(ts, '10 seconds') AS w, count(*) AS n FROM bids GROUP BY window(ts, '10 seconds');
-- expect rows spark_s_window_as_a_struct:
--   {"w": {"start": "2026-01-01 00:00:00", "end": "2026-01-01 00:00:10"}, "n": 5}
--   {"w": {"start": "2026-01-01 00:00:20", "end": "2026-01-01 00:00:30"}, "n": 1}

-- case: Spark's window that slides
CREATE VIEW spark_s_window_that_slides AS SELECT window.start AS s, count(*) AS n FROM bids GROUP BY window(ts, '10 seconds', '5 seconds');
-- expect rows spark_s_window_that_slides:
--   {"s": "2025-12-31 23:59:55", "n": 3}
--   {"s": "2026-01-01 00:00:00", "n": 5}
--   {"s": "2026-01-01 00:00:05", "n": 2}
--   {"s": "2026-01-01 00:00:15", "n": 1}
--   {"s": "2026-01-01 00:00:20", "n": 1}

-- case: Only the start of a window is grouped by
CREATE VIEW only_the_start_of_a_window_is_grouped_by AS SELECT window_start, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start;
-- expect rows only_the_start_of_a_window_is_grouped_by:
--   {"window_start": "2026-01-01 00:00:00", "n": 5}
--   {"window_start": "2026-01-01 00:00:20", "n": 1}

-- case: A window and a key
CREATE VIEW a_window_and_a_key AS SELECT window_start, window_end, channel, sum(price) AS s FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, channel;
-- expect rows a_window_and_a_key:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "channel": "app", "s": 250}
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "channel": "web", "s": 460}
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "channel": null, "s": null}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "channel": "app", "s": 40}

-- case: A key and a window in GROUP BY
CREATE VIEW a_key_and_a_window_in_group_by AS SELECT auction, TUMBLE_START(ts, INTERVAL '10' SECOND) AS s, max(price) AS top FROM bids GROUP BY auction, TUMBLE(ts, INTERVAL '10' SECOND);
-- expect rows a_key_and_a_window_in_group_by:
--   {"auction": 1, "s": "2026-01-01 00:00:00", "top": 250}
--   {"auction": 2, "s": "2026-01-01 00:00:00", "top": 90}
--   {"auction": 2, "s": "2026-01-01 00:00:20", "top": 40}
--   {"auction": 3, "s": "2026-01-01 00:00:00", "top": null}

-- case: window_time
CREATE VIEW window_time AS SELECT window_time, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, window_time;
-- expect rows window_time:
--   {"window_time": "2026-01-01 00:00:09.999000", "n": 5}
--   {"window_time": "2026-01-01 00:00:29.999000", "n": 1}

-- case: A window of a subquery
CREATE VIEW dear AS SELECT ts, price FROM bids WHERE price > 100; CREATE VIEW dear_windows AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows dear_windows:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: A window of a CTE
CREATE VIEW a_window_of_a_cte AS WITH dear AS (SELECT ts AS happened FROM bids WHERE price > 100) SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(happened), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows a_window_of_a_cte:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: A condition before a window
CREATE VIEW a_condition_before_a_window AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE channel = 'web' GROUP BY window_start, window_end;
-- expect rows a_condition_before_a_window:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: HAVING over a window
CREATE VIEW having_over_a_window AS SELECT window_start, channel, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, channel HAVING count(*) > 1;
-- expect rows having_over_a_window:
--   {"window_start": "2026-01-01 00:00:00", "channel": "web", "n": 3}

-- case: HOP
CREATE VIEW hop AS SELECT window_start, window_end, count(*) AS n FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows hop:
--   {"window_start": "2025-12-31 23:59:55", "window_end": "2026-01-01 00:00:05", "n": 3}
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   {"window_start": "2026-01-01 00:00:05", "window_end": "2026-01-01 00:00:15", "n": 2}
--   {"window_start": "2026-01-01 00:00:15", "window_end": "2026-01-01 00:00:25", "n": 1}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: HOP with names
CREATE VIEW hop_with_names AS SELECT window_start, window_end, count(*) AS n FROM TABLE(HOP(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '5' SECOND, SIZE => INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows hop_with_names:
--   {"window_start": "2025-12-31 23:59:55", "window_end": "2026-01-01 00:00:05", "n": 3}
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   {"window_start": "2026-01-01 00:00:05", "window_end": "2026-01-01 00:00:15", "n": 2}
--   {"window_start": "2026-01-01 00:00:15", "window_end": "2026-01-01 00:00:25", "n": 1}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: HOP in GROUP BY
CREATE VIEW hop_in_group_by AS SELECT HOP_START(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND) AS s, HOP_END(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND) AS e, count(*) AS n FROM bids GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND);
-- expect rows hop_in_group_by:
--   {"s": "2025-12-31 23:59:55", "e": "2026-01-01 00:00:05", "n": 3}
--   {"s": "2026-01-01 00:00:00", "e": "2026-01-01 00:00:10", "n": 5}
--   {"s": "2026-01-01 00:00:05", "e": "2026-01-01 00:00:15", "n": 2}
--   {"s": "2026-01-01 00:00:15", "e": "2026-01-01 00:00:25", "n": 1}
--   {"s": "2026-01-01 00:00:20", "e": "2026-01-01 00:00:30", "n": 1}

-- case: CUMULATE
CREATE VIEW cumulate AS SELECT window_start, window_end, count(*) AS n FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect rows cumulate:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:05", "n": 3}
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:25", "n": 1}
--   {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: SESSION
CREATE VIEW session AS SELECT window_start, window_end, bidder, count(*) AS n FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY window_start, window_end, bidder;
-- expect rows session:
--   {"window_start": "2026-01-01 00:00:01", "window_end": "2026-01-01 00:00:05", "bidder": 10, "n": 2}
--   {"window_start": "2026-01-01 00:00:03", "window_end": "2026-01-01 00:00:06", "bidder": 11, "n": 1}
--   {"window_start": "2026-01-01 00:00:06", "window_end": "2026-01-01 00:00:09", "bidder": 10, "n": 1}
--   {"window_start": "2026-01-01 00:00:08", "window_end": "2026-01-01 00:00:11", "bidder": 12, "n": 1}
--   {"window_start": "2026-01-01 00:00:21", "window_end": "2026-01-01 00:00:24", "bidder": 11, "n": 1}

-- case: SESSION without a key
CREATE VIEW session_without_a_key AS SELECT window_start, window_end, count(*) AS n FROM TABLE(SESSION(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end;
-- expect rows session_without_a_key:
--   {"window_start": "2026-01-01 00:00:01", "window_end": "2026-01-01 00:00:13", "n": 5}
--   {"window_start": "2026-01-01 00:00:21", "window_end": "2026-01-01 00:00:26", "n": 1}

-- case: SESSION in GROUP BY
CREATE VIEW session_in_group_by AS SELECT SESSION_START(ts, INTERVAL '3' SECOND) AS s, SESSION_END(ts, INTERVAL '3' SECOND) AS e, bidder, count(*) AS n FROM bids GROUP BY bidder, SESSION(ts, INTERVAL '3' SECOND);
-- expect rows session_in_group_by:
--   {"s": "2026-01-01 00:00:01", "e": "2026-01-01 00:00:05", "bidder": 10, "n": 2}
--   {"s": "2026-01-01 00:00:03", "e": "2026-01-01 00:00:06", "bidder": 11, "n": 1}
--   {"s": "2026-01-01 00:00:06", "e": "2026-01-01 00:00:09", "bidder": 10, "n": 1}
--   {"s": "2026-01-01 00:00:08", "e": "2026-01-01 00:00:11", "bidder": 12, "n": 1}
--   {"s": "2026-01-01 00:00:21", "e": "2026-01-01 00:00:24", "bidder": 11, "n": 1}

-- case: Spark's session_window
CREATE VIEW spark_s_session_window AS SELECT session_window.start AS s, session_window.end AS e, bidder, count(*) AS n FROM bids GROUP BY bidder, session_window(ts, '3 seconds');
-- expect rows spark_s_session_window:
--   {"s": "2026-01-01 00:00:01", "e": "2026-01-01 00:00:05", "bidder": 10, "n": 2}
--   {"s": "2026-01-01 00:00:03", "e": "2026-01-01 00:00:06", "bidder": 11, "n": 1}
--   {"s": "2026-01-01 00:00:06", "e": "2026-01-01 00:00:09", "bidder": 10, "n": 1}
--   {"s": "2026-01-01 00:00:08", "e": "2026-01-01 00:00:11", "bidder": 12, "n": 1}
--   {"s": "2026-01-01 00:00:21", "e": "2026-01-01 00:00:24", "bidder": 11, "n": 1}

-- case: COUNT_WINDOW
CREATE VIEW count_window AS SELECT window_index, count(*) AS n, sum(price) AS s FROM TABLE(COUNT_WINDOW(TABLE bids, 2)) GROUP BY window_index;
-- expect rows count_window:
--   {"window_index": 0, "n": 2, "s": 210}
--   {"window_index": 1, "n": 2, "s": 500}
--   {"window_index": 2, "n": 2, "s": 40}

-- case: COUNT_WINDOW per key
CREATE VIEW count_window_per_key AS SELECT window_index, channel, sum(price) AS s FROM TABLE(COUNT_WINDOW(TABLE bids, 2)) GROUP BY window_index, channel;
-- expect rows count_window_per_key:
--   {"window_index": 0, "channel": "app", "s": 290}
--   {"window_index": 0, "channel": "web", "s": 210}
--   {"window_index": 0, "channel": null, "s": null}
--   {"window_index": 1, "channel": "web", "s": 320}

-- case: COUNT_WINDOW that slides
CREATE VIEW count_window_that_slides AS SELECT window_index, sum(auction) AS s FROM TABLE(COUNT_WINDOW(TABLE bids, 3, 1)) GROUP BY window_index;
-- expect rows count_window_that_slides:
--   {"window_index": 0, "s": 1}
--   {"window_index": 1, "s": 3}
--   {"window_index": 2, "s": 4}
--   {"window_index": 3, "s": 4}
--   {"window_index": 4, "s": 5}
--   {"window_index": 5, "s": 6}
--   {"window_index": 6, "s": 5}
--   {"window_index": 7, "s": 2}

-- case: CALENDAR
CREATE VIEW calendar AS SELECT window_start, window_end, count(*) AS n FROM TABLE(CALENDAR(TABLE bids, DESCRIPTOR(ts), 'day', 'America/New_York')) GROUP BY window_start, window_end;
-- expect rows calendar:
--   {"window_start": "2025-12-31 05:00:00", "window_end": "2026-01-01 05:00:00", "n": 7}

-- case: CALENDAR in UTC
CREATE VIEW calendar_in_utc AS SELECT window_start, window_end, count(*) AS n FROM TABLE(CALENDAR(TABLE bids, DESCRIPTOR(ts), 'month')) GROUP BY window_start, window_end;
-- expect rows calendar_in_utc:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-02-01 00:00:00", "n": 7}

-- case: Groups of windows
CREATE VIEW groups_of_windows AS SELECT n, count(*) AS windows FROM (SELECT window_start, channel, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, channel) GROUP BY n;
-- expect rows groups_of_windows:
--   {"n": 1, "windows": 3}
--   {"n": 3, "windows": 1}

-- case: The greatest of each window
CREATE VIEW the_greatest_of_each_window AS SELECT window_end, channel, n FROM (SELECT window_end, channel, n, ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY n DESC, channel) AS r FROM (SELECT window_start, window_end, channel, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, channel)) WHERE r <= 1;
-- expect rows the_greatest_of_each_window:
--   {"window_end": "2026-01-01 00:00:10", "channel": "web", "n": 3}
--   {"window_end": "2026-01-01 00:00:30", "channel": "app", "n": 1}

-- case: A window over a union
CREATE VIEW a_window_over_a_union AS WITH every AS (SELECT ts, bidder FROM bids UNION ALL SELECT ts, bidder FROM clicks) SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE every, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
-- expect rows a_window_over_a_union:
--   {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:01:00", "n": 9}
