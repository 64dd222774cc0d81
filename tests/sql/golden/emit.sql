-- When a view answers, and how its answers relate: changes, epoch by epoch.
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

-- case: EMIT ON CHANGE is the usual one
CREATE VIEW emit_on_change_is_the_usual_one AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect changes emit_on_change_is_the_usual_one:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   2 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   3 +I {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: EMIT ON CHANGE
CREATE VIEW emit_on_change AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CHANGE;
-- expect changes emit_on_change:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   2 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   3 +I {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: EMIT ON CLOSE
CREATE VIEW emit_on_close AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CLOSE;
-- expect changes emit_on_close:
--   3 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}

-- case: ALLOWED LATENESS takes a late row
CREATE VIEW allowed_lateness_takes_a_late_row AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CLOSE ALLOWED LATENESS INTERVAL '1' MINUTE;
-- expect changes allowed_lateness_takes_a_late_row:
--   3 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   4 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 6}
--   4 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}

-- case: LATE NEVER
CREATE VIEW late_never AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CLOSE LATE NEVER ALLOWED LATENESS INTERVAL '1' MINUTE;
-- expect changes late_never:
--   3 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}

-- case: EARLY EVERY ROWS
CREATE VIEW early_every_rows AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CLOSE EARLY EVERY 2 ROWS;
-- expect changes early_every_rows:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   2 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: EMIT EVERY ROWS
CREATE VIEW emit_every_rows AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT EVERY 2 ROWS;
-- expect changes emit_every_rows:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   2 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: EMIT AFTER ROWS answers once
CREATE VIEW emit_after_rows_answers_once AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT AFTER 2 ROWS;
-- expect changes emit_after_rows_answers_once:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: DISCARDING
CREATE VIEW discarding AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT EVERY 2 ROWS DISCARDING;
-- expect changes discarding:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 2}

-- case: ACCUMULATING
CREATE VIEW accumulating AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT EVERY 2 ROWS ACCUMULATING;
-- expect changes accumulating:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}

-- case: RETRACTING
CREATE VIEW retracting AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT EVERY 2 ROWS RETRACTING;
-- expect changes retracting:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   2 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: ANY OF
CREATE VIEW any_of AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ANY OF (AFTER 5 ROWS, ON CLOSE);
-- expect changes any_of:
--   2 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}

-- case: ALL OF
CREATE VIEW all_of AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ALL OF (AFTER 2 ROWS, AFTER 4 ROWS);
-- expect changes all_of:
--   2 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}

-- case: IN ORDER
CREATE VIEW in_order AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT IN ORDER (AFTER 2 ROWS, AFTER 3 ROWS);
-- expect changes in_order:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   3 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   3 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}

-- case: UNTIL
CREATE VIEW until AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT REPEATEDLY (AFTER 1 ROW) UNTIL AFTER 4 ROWS;
-- expect changes until:
--   1 +I {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   2 +U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 5}
--   2 -U {"window_start": "2026-01-01 00:00:00", "window_end": "2026-01-01 00:00:10", "n": 3}
--   3 +I {"window_start": "2026-01-01 00:00:20", "window_end": "2026-01-01 00:00:30", "n": 1}

-- case: Groups without a window take back
CREATE VIEW groups_without_a_window_take_back AS SELECT channel, count(*) AS n FROM bids GROUP BY channel;
-- expect changes groups_without_a_window_take_back:
--   1 +I {"channel": "app", "n": 1}
--   1 +I {"channel": "web", "n": 2}
--   2 +I {"channel": null, "n": 1}
--   2 +U {"channel": "web", "n": 3}
--   2 -U {"channel": "web", "n": 2}
--   3 +U {"channel": "app", "n": 2}
--   3 -U {"channel": "app", "n": 1}
--   4 +U {"channel": "web", "n": 4}
--   4 -U {"channel": "web", "n": 3}

-- case: EMIT without a window
CREATE VIEW emit_without_a_window AS SELECT channel, count(*) AS n FROM bids GROUP BY channel EMIT EVERY 2 ROWS;
-- expect changes emit_without_a_window:
--   1 +I {"channel": "web", "n": 2}
--   3 +I {"channel": "app", "n": 2}
--   4 +U {"channel": "web", "n": 4}
--   4 -U {"channel": "web", "n": 2}

-- case: HAVING lets rows come and go
CREATE VIEW having_lets_rows_come_and_go AS SELECT auction, min(price) AS lo FROM bids GROUP BY auction HAVING min(price) > 80;
-- expect changes having_lets_rows_come_and_go:
--   1 +I {"auction": 1, "lo": 120}
--   1 +I {"auction": 2, "lo": 90}
--   3 -D {"auction": 2, "lo": 90}

-- case: Groups of groups take back
CREATE VIEW groups_of_groups_take_back AS SELECT n, count(*) AS auctions FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction) GROUP BY n;
-- expect changes groups_of_groups_take_back:
--   1 +I {"n": 1, "auctions": 1}
--   1 +I {"n": 2, "auctions": 1}
--   2 +I {"n": 3, "auctions": 1}
--   2 +U {"n": 1, "auctions": 2}
--   2 -D {"n": 2, "auctions": 1}
--   2 -U {"n": 1, "auctions": 1}
--   3 +I {"n": 2, "auctions": 1}
--   3 +U {"n": 1, "auctions": 1}
--   3 -U {"n": 1, "auctions": 2}
--   4 +U {"n": 3, "auctions": 2}
--   4 -D {"n": 2, "auctions": 1}
--   4 -U {"n": 3, "auctions": 1}

-- case: First rows come and go
CREATE VIEW first_rows_come_and_go AS SELECT auction, price FROM bids ORDER BY price DESC LIMIT 1;
-- expect changes first_rows_come_and_go:
--   1 +I {"auction": 1, "price": 250}

-- case: DISTINCT only adds
CREATE VIEW distinct_only_adds AS SELECT DISTINCT channel FROM bids;
-- expect changes distinct_only_adds:
--   1 +I {"channel": "app"}
--   1 +I {"channel": "web"}
--   2 +I {"channel": null}

-- case: Rows only add
CREATE VIEW rows_only_add AS SELECT auction, price FROM bids WHERE price > 100;
-- expect changes rows_only_add:
--   1 +I {"auction": 1, "price": 120}
--   1 +I {"auction": 1, "price": 250}
--   2 +I {"auction": 1, "price": 250}

-- case: EMIT of a subquery's window
CREATE VIEW emit_of_a_subquery_s_window AS SELECT n FROM (SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) EMIT ON CLOSE;
-- expect changes emit_of_a_subquery_s_window:
--   3 +I {"n": 5}
