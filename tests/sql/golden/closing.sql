-- EMIT ON CLOSE for queries without GROUP BY: a row comes once it can change no more. Clicks may be a minute late.
-- given bids: {"auction": 1, "bidder": 10, "price": 120, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:01Z"}
-- given bids: {"auction": 1, "bidder": 11, "price": 250, "channel": "app", "tags": [], "ts": "2026-01-01T00:00:03Z"}
-- given bids: {"auction": 2, "bidder": 10, "price": 90, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:02Z"}
-- given clicks: {"bidder": 10, "page": "/a", "home": null, "m": null, "ts": "2026-01-01T00:00:05Z"}
-- epoch
-- given bids: {"auction": 3, "bidder": 12, "price": 300, "channel": "web", "tags": ["new"], "ts": "2026-01-01T00:00:08Z"}
-- given bids: {"auction": 1, "bidder": 10, "price": 260, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:06Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 11, "price": 40, "channel": "app", "tags": [], "ts": "2026-01-01T00:00:21Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 12, "price": 700, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:04Z"}
-- given clicks: {"bidder": 12, "page": "/b", "home": null, "m": null, "ts": "2026-01-01T00:01:25Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 12, "price": 10, "channel": "web", "tags": [], "ts": "2026-01-01T00:01:20Z"}

-- case: A projection of a view with windows
CREATE VIEW per_auction AS SELECT window_start, window_end, auction, max(price) AS best FROM TUMBLE(bids, ts, '10 seconds') GROUP BY window_start, window_end, auction;
CREATE VIEW a_projection AS SELECT auction, best FROM per_auction WHERE best > 100 EMIT ON CLOSE;
-- expect changes a_projection:
--   3 +I {"auction": 1, "best": 260}
--   3 +I {"auction": 3, "best": 300}

-- case: The spelling with WINDOW
CREATE VIEW with_window AS SELECT auction, best FROM per_auction EMIT ON WINDOW CLOSE;
-- expect changes with_window:
--   3 +I {"auction": 1, "best": 260}
--   3 +I {"auction": 2, "best": 90}
--   3 +I {"auction": 3, "best": 300}
--   5 +I {"auction": 2, "best": 40}

-- case: The best of each window of a view
CREATE VIEW best_of_view AS SELECT window_end, auction, best FROM (SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY best DESC) AS place FROM per_auction) WHERE place = 1 EMIT ON CLOSE;
-- expect changes best_of_view:
--   3 +I {"window_end": "2026-01-01 00:00:10", "auction": 3, "best": 300}
--   5 +I {"window_end": "2026-01-01 00:00:30", "auction": 2, "best": 40}

-- case: The best of each window, straight over records
CREATE VIEW best_of_records AS SELECT window_start, bidder, price, tags FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE place <= 2 EMIT ON CLOSE;
-- expect changes best_of_records:
--   3 +I {"window_start": "2026-01-01 00:00:00", "bidder": 10, "price": 260, "tags": []}
--   3 +I {"window_start": "2026-01-01 00:00:00", "bidder": 12, "price": 300, "tags": ["new"]}
--   5 +I {"window_start": "2026-01-01 00:00:20", "bidder": 11, "price": 40, "tags": []}

-- case: One record of each bidder and window
CREATE VIEW once AS SELECT bidder, window_start, price FROM TUMBLE(bids, ts, '10 seconds') QUALIFY row_number() OVER (PARTITION BY bidder, window_start, window_end ORDER BY ts) = 1 EMIT ON CLOSE;
-- expect changes once:
--   3 +I {"bidder": 10, "window_start": "2026-01-01 00:00:00", "price": 120}
--   3 +I {"bidder": 11, "window_start": "2026-01-01 00:00:00", "price": 250}
--   3 +I {"bidder": 12, "window_start": "2026-01-01 00:00:00", "price": 300}
--   5 +I {"bidder": 11, "window_start": "2026-01-01 00:00:20", "price": 40}

-- case: DISTINCT
CREATE VIEW channels AS SELECT DISTINCT channel, window_end FROM TUMBLE(bids, ts, '10 seconds') EMIT ON CLOSE;
-- expect changes channels:
--   3 +I {"channel": "app", "window_end": "2026-01-01 00:00:10"}
--   3 +I {"channel": "web", "window_end": "2026-01-01 00:00:10"}
--   5 +I {"channel": "app", "window_end": "2026-01-01 00:00:30"}

-- case: A join of records within a time
CREATE VIEW visits AS SELECT b.auction, c.page FROM bids b LEFT JOIN clicks c ON c.bidder = b.bidder AND c.ts BETWEEN b.ts AND b.ts + INTERVAL '10' SECOND EMIT ON CLOSE;
-- expect changes visits:
--   4 +I {"auction": 1, "page": "/a"}
--   4 +I {"auction": 1, "page": null}
--   4 +I {"auction": 1, "page": null}
--   4 +I {"auction": 2, "page": "/a"}
--   4 +I {"auction": 2, "page": null}
--   5 +I {"auction": 3, "page": null}

-- case: A join of windows
CREATE VIEW per_bidder AS SELECT window_end, count(*) AS n FROM TUMBLE(bids, ts, '10 seconds') GROUP BY window_start, window_end;
CREATE VIEW of_windows AS SELECT a.auction, a.best, b.n FROM per_auction a JOIN per_bidder b ON a.window_end = b.window_end EMIT ON CLOSE;
-- expect changes of_windows:
--   3 +I {"auction": 1, "best": 260, "n": 5}
--   3 +I {"auction": 2, "best": 90, "n": 5}
--   3 +I {"auction": 3, "best": 300, "n": 5}
--   5 +I {"auction": 2, "best": 40, "n": 1}

-- case: UNION of views
CREATE VIEW both AS SELECT window_end, best AS x FROM per_auction UNION ALL SELECT window_end, n AS x FROM per_bidder EMIT ON CLOSE;
-- expect changes both:
--   3 +I {"window_end": "2026-01-01 00:00:10", "x": 260}
--   3 +I {"window_end": "2026-01-01 00:00:10", "x": 300}
--   3 +I {"window_end": "2026-01-01 00:00:10", "x": 5}
--   3 +I {"window_end": "2026-01-01 00:00:10", "x": 90}
--   5 +I {"window_end": "2026-01-01 00:00:30", "x": 1}
--   5 +I {"window_end": "2026-01-01 00:00:30", "x": 40}

-- case: Records in order
CREATE VIEW in_order AS SELECT auction, price FROM bids EMIT ON CLOSE;
-- expect changes in_order:
--   2 +I {"auction": 1, "price": 120}
--   2 +I {"auction": 1, "price": 250}
--   2 +I {"auction": 2, "price": 90}
--   3 +I {"auction": 1, "price": 260}
--   3 +I {"auction": 3, "price": 300}
--   4 +I {"auction": 2, "price": 700}
--   5 +I {"auction": 2, "price": 40}

-- case: EMIT ON CHANGE is what they do anyway
CREATE VIEW anyway AS SELECT auction, price FROM bids WHERE price > 200 EMIT ON CHANGE;
-- expect changes anyway:
--   1 +I {"auction": 1, "price": 250}
--   2 +I {"auction": 1, "price": 260}
--   2 +I {"auction": 3, "price": 300}
--   4 +I {"auction": 2, "price": 700}

-- case: Without an event time
CREATE VIEW v AS SELECT sensor, value FROM readings EMIT ON CLOSE;
-- expect error:
--   unsupported at 1:25: the rows of this query never become final: no event time reaches the result unchanged
--   hint: keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out

-- case: A table
CREATE VIEW v AS SELECT name FROM items EMIT ON CLOSE;
-- expect error:
--   unsupported at 1:25: the rows of this query never become final: no event time reaches the result unchanged
--   hint: keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out

-- case: Groups that never end
CREATE VIEW v AS SELECT auction, n FROM hot EMIT ON CLOSE;
-- expect error:
--   unsupported at 1:25: the rows of this query never become final: no event time reaches the result unchanged
--   hint: keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out

-- case: A join that nothing bounds
CREATE VIEW v AS SELECT b.price, c.page FROM bids b JOIN clicks c ON b.bidder = c.bidder EMIT ON CLOSE;
-- expect error:
--   unsupported at 1:25: the rows of this query never become final: no event time reaches the result unchanged
--   hint: keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out

-- case: The first record of each bidder, for good
CREATE VIEW v AS SELECT bidder, price FROM bids QUALIFY row_number() OVER (PARTITION BY bidder ORDER BY ts) = 1 EMIT ON CLOSE;
-- expect error:
--   unsupported at 1:25: the rows of this query never become final: no event time reaches the result unchanged
--   hint: keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out

-- case: A time that an outer join may not have
CREATE VIEW p AS SELECT window_end, count(*) AS n FROM TUMBLE(bids, ts, '10 seconds') GROUP BY window_start, window_end;
CREATE VIEW a AS SELECT window_end, max(ts) AS last FROM TUMBLE(clicks, ts, '10 seconds') GROUP BY window_start, window_end;
CREATE VIEW v AS SELECT p.n, a.last FROM p FULL JOIN a ON a.window_end = p.window_end EMIT ON CLOSE;
-- expect error:
--   unsupported at 3:25: the rows of this query never become final: no event time reaches the result unchanged
--   hint: keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out

-- case: Lateness without a window
CREATE VIEW v AS SELECT auction FROM bids EMIT ON CLOSE ALLOWED LATENESS INTERVAL '1' MINUTE;
-- expect error:
--   definition_error at 1:25: EMIT, ALLOWED LATENESS and FILL need the windows of a GROUP BY, and this query has none
--   hint: EMIT ON CLOSE and EMIT ON CHANGE can follow any query

-- case: Another trigger without a window
CREATE VIEW v AS SELECT auction FROM bids EMIT EVERY 10 ROWS;
-- expect error:
--   definition_error at 1:25: EMIT, ALLOWED LATENESS and FILL need the windows of a GROUP BY, and this query has none
--   hint: EMIT ON CLOSE and EMIT ON CHANGE can follow any query
