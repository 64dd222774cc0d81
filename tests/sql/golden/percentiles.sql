-- Percentiles, sketches and the aggregates that choose a value.
-- given bids: {"auction": 1, "bidder": 10, "price": 120, "channel": "web", "tags": ["old"], "ts": "2026-01-01T00:00:01Z"}
-- given bids: {"auction": 1, "bidder": 11, "price": 250, "channel": "app", "tags": ["old"], "ts": "2026-01-01T00:00:03Z"}
-- given bids: {"auction": 2, "bidder": 10, "price": 90, "channel": "web", "tags": [], "ts": "2026-01-01T00:00:02Z"}
-- epoch
-- given bids: {"auction": 3, "bidder": 12, "price": null, "channel": null, "tags": null, "ts": "2026-01-01T00:00:08Z"}
-- given bids: {"auction": 1, "bidder": 10, "price": 250, "channel": "web", "tags": ["new"], "ts": "2026-01-01T00:00:06Z"}
-- given bids: {"auction": 1, "bidder": 13, "price": 80, "channel": "tel", "tags": [], "ts": "2026-01-01T00:00:07Z"}
-- epoch
-- given bids: {"auction": 2, "bidder": 11, "price": 40, "channel": "app", "tags": ["map"], "ts": "2026-01-01T00:00:21Z"}

-- case: Median and percentile
CREATE VIEW median_and_percentile AS SELECT auction, median(price) AS m, percentile(price, 0.25) AS q FROM bids GROUP BY auction;
-- expect rows median_and_percentile:
--   {"auction": 1, "m": 185.0, "q": 110.0}
--   {"auction": 2, "m": 65.0, "q": 52.5}
--   {"auction": 3, "m": null, "q": null}

-- case: Several percentiles
CREATE VIEW several_percentiles AS SELECT percentile(price, array(0, 0.1, 0.5, 1)) AS p, approx_percentile(price, array(0.0, 0.5, 1.0), 100) AS a FROM bids;
-- expect rows several_percentiles:
--   {"p": [40.0, 60.0, 105.0, 250.0], "a": [40, 90, 250]}

-- case: approx_percentile has the type of its argument
CREATE VIEW typed AS SELECT auction, approx_percentile(price, 0.5) AS a, percentile_approx(price * 1.5D, 0.5, 10) AS b FROM bids GROUP BY auction;
-- expect rows typed:
--   {"auction": 1, "a": 120, "b": 180.0}
--   {"auction": 2, "a": 40, "b": 60.0}
--   {"auction": 3, "a": null, "b": null}

-- case: Changes of a median
CREATE VIEW medians AS SELECT auction, median(price) AS m FROM bids GROUP BY auction;
-- expect changes medians:
--   1 +I {"auction": 1, "m": 185.0}
--   1 +I {"auction": 2, "m": 90.0}
--   2 +I {"auction": 3, "m": null}
--   3 +U {"auction": 2, "m": 65.0}
--   3 -U {"auction": 2, "m": 90.0}

-- case: Distinct, about
CREATE VIEW distinct_about AS SELECT auction, approx_count_distinct(bidder) AS n, approx_count_distinct(channel, 0.1) AS c FROM bids GROUP BY auction;
-- expect rows distinct_about:
--   {"auction": 1, "n": 3, "c": 3}
--   {"auction": 2, "n": 2, "c": 2}
--   {"auction": 3, "n": 1, "c": 0}

-- case: The most frequent
CREATE VIEW most_frequent AS SELECT approx_top_k(channel) AS five, approx_top_k(channel, 1) AS one, approx_top_k(bidder, 2, 100) AS two FROM bids;
-- expect rows most_frequent:
--   {"five": [{"item": "web", "count": 3}, {"item": "app", "count": 2}, {"item": "tel", "count": 1}], "one": [{"item": "web", "count": 3}], "two": [{"item": 10, "count": 3}, {"item": 11, "count": 2}]}

-- case: A filter before them
CREATE VIEW filtered AS SELECT median(price) FILTER (WHERE channel = 'web') AS m, approx_count_distinct(bidder) FILTER (WHERE price > 100) AS n, max_by(bidder, price) FILTER (WHERE channel <> 'web') AS b FROM bids;
-- expect rows filtered:
--   {"m": 120.0, "n": 2, "b": 11}

-- case: The bidder of the highest and of the lowest price
CREATE VIEW highest AS SELECT auction, max_by(bidder, price) AS high, min_by(bidder, price) AS low FROM bids GROUP BY auction;
-- expect rows highest:
--   {"auction": 1, "high": 11, "low": 13}
--   {"auction": 2, "high": 10, "low": 11}
--   {"auction": 3, "high": null, "low": null}

-- case: Conditions of all and of some
CREATE VIEW conditions AS SELECT auction, every(price > 100) AS e, some(price > 100) AS s, bool_and(price > 50) AS b, count_if(price > 100) AS n FROM bids GROUP BY auction;
-- expect rows conditions:
--   {"auction": 1, "e": false, "s": true, "b": true, "n": 3}
--   {"auction": 2, "e": false, "s": false, "b": false, "n": 0}
--   {"auction": 3, "e": null, "s": null, "b": null, "n": 0}

-- case: Sets and the mode
CREATE VIEW sets AS SELECT auction, collect_set(channel) AS c, mode(channel) AS m FROM bids GROUP BY auction;
-- expect rows sets:
--   {"auction": 1, "c": ["app", "tel", "web"], "m": "web"}
--   {"auction": 2, "c": ["app", "web"], "m": "app"}
--   {"auction": 3, "c": [], "m": null}

-- case: In windows
CREATE VIEW windowed AS SELECT window_start, median(price) AS m, approx_count_distinct(bidder) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL 5 SECONDS)) GROUP BY window_start, window_end;
-- expect rows windowed:
--   {"window_start": "2026-01-01 00:00:00", "m": 120.0, "n": 2}
--   {"window_start": "2026-01-01 00:00:05", "m": 165.0, "n": 3}
--   {"window_start": "2026-01-01 00:00:20", "m": 40.0, "n": 1}

-- case: Over hopping windows
CREATE VIEW hopped AS SELECT window_end, approx_percentile(price, 0.5) AS m, approx_top_k(bidder, 1) AS t FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL 5 SECONDS, INTERVAL 10 SECONDS)) GROUP BY window_start, window_end;
-- expect rows hopped:
--   {"window_end": "2026-01-01 00:00:05", "m": 120, "t": [{"item": 10, "count": 2}]}
--   {"window_end": "2026-01-01 00:00:10", "m": 120, "t": [{"item": 10, "count": 3}]}
--   {"window_end": "2026-01-01 00:00:15", "m": 80, "t": [{"item": 10, "count": 1}]}
--   {"window_end": "2026-01-01 00:00:25", "m": 40, "t": [{"item": 11, "count": 1}]}
--   {"window_end": "2026-01-01 00:00:30", "m": 40, "t": [{"item": 11, "count": 1}]}

-- case: Over groups
CREATE VIEW over_groups AS SELECT median(n) AS m, approx_count_distinct(n) AS d, approx_top_k(n, 2) AS t, max_by(auction, n) AS a FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction);
-- expect rows over_groups:
--   {"m": 2.0, "d": 3, "t": [{"item": 1, "count": 1}, {"item": 2, "count": 1}], "a": 1}
-- expect changes over_groups:
--   1 +I {"m": 1.5, "d": 2, "t": [{"item": 1, "count": 1}, {"item": 2, "count": 1}], "a": 1}
--   2 +U {"m": 1.0, "d": 2, "t": [{"item": 1, "count": 2}, {"item": 4, "count": 1}], "a": 1}
--   2 -U {"m": 1.5, "d": 2, "t": [{"item": 1, "count": 1}, {"item": 2, "count": 1}], "a": 1}
--   3 +U {"m": 2.0, "d": 3, "t": [{"item": 1, "count": 1}, {"item": 2, "count": 1}], "a": 1}
--   3 -U {"m": 1.0, "d": 2, "t": [{"item": 1, "count": 2}, {"item": 4, "count": 1}], "a": 1}

-- case: Names of their own
CREATE VIEW names AS SELECT median(price), percentile(price, 0.5), approx_percentile(price, 0.5), approx_count_distinct(price), max_by(bidder, price), every(price > 1) FROM bids;
-- expect rows names:
--   {"median_price": 105.0, "percentile_price": 105.0, "approx_percentile_price": 90, "approx_count_distinct_price": 5, "max_by_bidder": 11, "every": true}

-- case: The shape of the values
CREATE VIEW shape AS SELECT auction, var_pop(price) AS v, stddev_pop(price) AS d, skewness(price) AS s, kurtosis(price) AS k FROM bids GROUP BY auction;
-- expect rows shape:
--   {"auction": 1, "v": 5825.0, "d": 76.321687612, "s": -0.101220533, "k": -1.866197572}
--   {"auction": 2, "v": 625.0, "d": 25.0, "s": 0.0, "k": -2.0}
--   {"auction": 3, "v": null, "d": null, "s": null, "k": null}
