-- GROUP BY: keys, aggregates, FILTER, HAVING, grouping sets, groups of groups, first rows.
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

-- case: Count per key
CREATE VIEW count_per_key AS SELECT auction, count(*) AS n FROM bids GROUP BY auction;
-- expect rows count_per_key:
--   {"auction": 1, "n": 3}
--   {"auction": 2, "n": 3}
--   {"auction": 3, "n": 1}

-- case: Without a key
CREATE VIEW without_a_key AS SELECT count(*) AS n, sum(price) AS s, avg(price) AS a, min(price) AS lo, max(price) AS hi FROM bids;
-- expect rows without_a_key:
--   {"n": 7, "s": 820, "a": 136.666666667, "lo": 40, "hi": 250}

-- case: Two keys
CREATE VIEW two_keys AS SELECT auction, channel, count(*) AS n FROM bids GROUP BY auction, channel;
-- expect rows two_keys:
--   {"auction": 1, "channel": "app", "n": 1}
--   {"auction": 1, "channel": "web", "n": 2}
--   {"auction": 2, "channel": "app", "n": 1}
--   {"auction": 2, "channel": "web", "n": 2}
--   {"auction": 3, "channel": null, "n": 1}

-- case: A key by its number
CREATE VIEW a_key_by_its_number AS SELECT channel, count(*) AS n FROM bids GROUP BY 1;
-- expect rows a_key_by_its_number:
--   {"channel": "app", "n": 2}
--   {"channel": "web", "n": 4}
--   {"channel": null, "n": 1}

-- case: A key by its alias
CREATE VIEW a_key_by_its_alias AS SELECT price > 100 AS dear, count(*) AS n FROM bids GROUP BY dear;
-- expect rows a_key_by_its_alias:
--   {"dear": false, "n": 3}
--   {"dear": null, "n": 1}
--   {"dear": true, "n": 3}

-- case: An expression as a key
CREATE VIEW an_expression_as_a_key AS SELECT auction % 2 AS odd, count(*) AS n FROM bids GROUP BY auction % 2;
-- expect rows an_expression_as_a_key:
--   {"odd": 0, "n": 3}
--   {"odd": 1, "n": 4}

-- case: A key that is not shown
CREATE VIEW a_key_that_is_not_shown AS SELECT count(*) AS n FROM bids GROUP BY channel;
-- expect rows a_key_that_is_not_shown:
--   {"n": 1}
--   {"n": 2}
--   {"n": 4}

-- case: Only keys
CREATE VIEW only_keys AS SELECT channel FROM bids GROUP BY channel;
-- expect rows only_keys:
--   {"channel": "app"}
--   {"channel": "web"}
--   {"channel": null}

-- case: An expression over aggregates
CREATE VIEW an_expression_over_aggregates AS SELECT auction, max(price) - min(price) AS spread, sum(price) / count(price) AS mean FROM bids GROUP BY auction;
-- expect rows an_expression_over_aggregates:
--   {"auction": 1, "spread": 130, "mean": 206.666666667}
--   {"auction": 2, "spread": 50, "mean": 66.666666667}
--   {"auction": 3, "spread": null, "mean": null}

-- case: An expression over a key
CREATE VIEW an_expression_over_a_key AS SELECT auction * 10 AS ten, count(*) AS n FROM bids GROUP BY auction;
-- expect rows an_expression_over_a_key:
--   {"ten": 10, "n": 3}
--   {"ten": 20, "n": 3}
--   {"ten": 30, "n": 1}

-- case: count of a column leaves NULL out
CREATE VIEW count_of_a_column_leaves_null_out AS SELECT auction, count(price) AS n, count(1) AS every FROM bids GROUP BY auction;
-- expect rows count_of_a_column_leaves_null_out:
--   {"auction": 1, "n": 3, "every": 3}
--   {"auction": 2, "n": 3, "every": 3}
--   {"auction": 3, "n": 0, "every": 1}

-- case: count DISTINCT
CREATE VIEW count_distinct AS SELECT channel, count(DISTINCT bidder) AS bidders FROM bids GROUP BY channel;
-- expect rows count_distinct:
--   {"channel": "app", "bidders": 1}
--   {"channel": "web", "bidders": 2}
--   {"channel": null, "bidders": 1}

-- case: count DISTINCT of two
CREATE VIEW count_distinct_of_two AS SELECT count(DISTINCT auction, channel) AS pairs FROM bids;
-- expect rows count_distinct_of_two:
--   {"pairs": 4}

-- case: count of two columns
CREATE VIEW count_of_two_columns AS SELECT count(price, channel) AS both FROM bids;
-- expect rows count_of_two_columns:
--   {"both": 6}

-- case: FILTER
CREATE VIEW filter AS SELECT count(*) FILTER (WHERE price > 100) AS dear, sum(price) FILTER (WHERE channel = 'web') AS web FROM bids;
-- expect rows filter:
--   {"dear": 3, "web": 530}

-- case: FILTER with DISTINCT
CREATE VIEW filter_with_distinct AS SELECT count(DISTINCT bidder) FILTER (WHERE price > 100) AS who FROM bids;
-- expect rows filter_with_distinct:
--   {"who": 2}

-- case: count_if
CREATE VIEW count_if AS SELECT auction, count_if(price > 100) AS dear FROM bids GROUP BY auction;
-- expect rows count_if:
--   {"auction": 1, "dear": 3}
--   {"auction": 2, "dear": 0}
--   {"auction": 3, "dear": 0}

-- case: The same aggregate twice
CREATE VIEW the_same_aggregate_twice AS SELECT auction, count(*) AS n, count(*) + 1 AS m FROM bids GROUP BY auction;
-- expect rows the_same_aggregate_twice:
--   {"auction": 1, "n": 3, "m": 4}
--   {"auction": 2, "n": 3, "m": 4}
--   {"auction": 3, "n": 1, "m": 2}

-- case: first and last go by event time
CREATE VIEW first_and_last_go_by_event_time AS SELECT auction, first(bidder) AS f, last(bidder) AS l FROM bids GROUP BY auction;
-- expect rows first_and_last_go_by_event_time:
--   {"auction": 1, "f": 10, "l": 10}
--   {"auction": 2, "f": 10, "l": 11}
--   {"auction": 3, "f": 12, "l": 12}

-- case: collect_list
CREATE VIEW collect_list AS SELECT channel, collect_list(auction) AS auctions FROM bids WHERE channel = 'app' GROUP BY channel;
-- expect rows collect_list:
--   {"channel": "app", "auctions": [1, 2]}

-- case: variance and stddev
CREATE VIEW variance_and_stddev AS SELECT round(variance(price), 3) AS v, round(stddev(price), 3) AS s FROM bids;
-- expect rows variance_and_stddev:
--   {"v": 8386.667, "s": 91.579}

-- case: bool_and and bool_or
CREATE VIEW bool_and_and_bool_or AS SELECT auction, bool_and(price > 100) AS every, bool_or(price > 100) AS some_ FROM bids GROUP BY auction;
-- expect rows bool_and_and_bool_or:
--   {"auction": 1, "every": true, "some_": true}
--   {"auction": 2, "every": false, "some_": false}
--   {"auction": 3, "every": null, "some_": null}

-- case: Aggregate of a CASE
CREATE VIEW aggregate_of_a_case AS SELECT sum(CASE WHEN channel = 'web' THEN price ELSE 0 END) AS web FROM bids;
-- expect rows aggregate_of_a_case:
--   {"web": 530}

-- case: HAVING
CREATE VIEW having AS SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING count(*) > 1;
-- expect rows having:
--   {"auction": 1, "n": 3}
--   {"auction": 2, "n": 3}

-- case: HAVING of what is not shown
CREATE VIEW having_of_what_is_not_shown AS SELECT auction FROM bids GROUP BY auction HAVING max(price) >= 100;
-- expect rows having_of_what_is_not_shown:
--   {"auction": 1}

-- case: HAVING over a key
CREATE VIEW having_over_a_key AS SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING auction > 1;
-- expect rows having_over_a_key:
--   {"auction": 2, "n": 3}
--   {"auction": 3, "n": 1}

-- case: WHERE and HAVING
CREATE VIEW where_and_having AS SELECT auction, sum(price) AS s FROM bids WHERE channel = 'web' GROUP BY auction HAVING sum(price) > 200;
-- expect rows where_and_having:
--   {"auction": 1, "s": 370}

-- case: GROUPING SETS
CREATE VIEW grouping_sets AS SELECT auction, channel, count(*) AS n FROM bids GROUP BY GROUPING SETS ((auction), (channel), ());
-- expect rows grouping_sets:
--   {"auction": 1, "channel": null, "n": 3}
--   {"auction": 2, "channel": null, "n": 3}
--   {"auction": 3, "channel": null, "n": 1}
--   {"auction": null, "channel": "app", "n": 2}
--   {"auction": null, "channel": "web", "n": 4}
--   {"auction": null, "channel": null, "n": 1}
--   {"auction": null, "channel": null, "n": 7}

-- case: GROUPING tells NULL from all
CREATE VIEW grouping_tells_null_from_all AS SELECT channel, grouping(channel) AS every, count(*) AS n FROM bids GROUP BY GROUPING SETS ((channel), ());
-- expect rows grouping_tells_null_from_all:
--   {"channel": "app", "every": 0, "n": 2}
--   {"channel": "web", "every": 0, "n": 4}
--   {"channel": null, "every": 0, "n": 1}
--   {"channel": null, "every": 1, "n": 7}

-- case: ROLLUP
CREATE VIEW rollup AS SELECT channel, auction, sum(price) AS s FROM bids GROUP BY ROLLUP (channel, auction);
-- expect rows rollup:
--   {"channel": "app", "auction": 1, "s": 250}
--   {"channel": "app", "auction": 2, "s": 40}
--   {"channel": "app", "auction": null, "s": 290}
--   {"channel": "web", "auction": 1, "s": 370}
--   {"channel": "web", "auction": 2, "s": 160}
--   {"channel": "web", "auction": null, "s": 530}
--   {"channel": null, "auction": 3, "s": null}
--   {"channel": null, "auction": null, "s": 820}
--   {"channel": null, "auction": null, "s": null}

-- case: WITH ROLLUP
CREATE VIEW with_rollup AS SELECT channel, auction, sum(price) AS s FROM bids GROUP BY channel, auction WITH ROLLUP;
-- expect rows with_rollup:
--   {"channel": "app", "auction": 1, "s": 250}
--   {"channel": "app", "auction": 2, "s": 40}
--   {"channel": "app", "auction": null, "s": 290}
--   {"channel": "web", "auction": 1, "s": 370}
--   {"channel": "web", "auction": 2, "s": 160}
--   {"channel": "web", "auction": null, "s": 530}
--   {"channel": null, "auction": 3, "s": null}
--   {"channel": null, "auction": null, "s": 820}
--   {"channel": null, "auction": null, "s": null}

-- case: ROLLUP of pairs
CREATE VIEW rollup_of_pairs AS SELECT channel, auction, bidder, count(*) AS n FROM bids GROUP BY ROLLUP ((channel, auction), bidder);
-- expect rows rollup_of_pairs:
--   {"channel": "app", "auction": 1, "bidder": 11, "n": 1}
--   {"channel": "app", "auction": 1, "bidder": null, "n": 1}
--   {"channel": "app", "auction": 2, "bidder": 11, "n": 1}
--   {"channel": "app", "auction": 2, "bidder": null, "n": 1}
--   {"channel": "web", "auction": 1, "bidder": 10, "n": 2}
--   {"channel": "web", "auction": 1, "bidder": null, "n": 2}
--   {"channel": "web", "auction": 2, "bidder": 10, "n": 1}
--   {"channel": "web", "auction": 2, "bidder": 12, "n": 1}
--   {"channel": "web", "auction": 2, "bidder": null, "n": 2}
--   {"channel": null, "auction": 3, "bidder": 12, "n": 1}
--   {"channel": null, "auction": 3, "bidder": null, "n": 1}
--   {"channel": null, "auction": null, "bidder": null, "n": 7}

-- case: CUBE
CREATE VIEW cube AS SELECT channel, auction, count(*) AS n FROM bids GROUP BY CUBE (channel, auction);
-- expect rows cube:
--   {"channel": "app", "auction": 1, "n": 1}
--   {"channel": "app", "auction": 2, "n": 1}
--   {"channel": "app", "auction": null, "n": 2}
--   {"channel": "web", "auction": 1, "n": 2}
--   {"channel": "web", "auction": 2, "n": 2}
--   {"channel": "web", "auction": null, "n": 4}
--   {"channel": null, "auction": 1, "n": 3}
--   {"channel": null, "auction": 2, "n": 3}
--   {"channel": null, "auction": 3, "n": 1}
--   {"channel": null, "auction": 3, "n": 1}
--   {"channel": null, "auction": null, "n": 1}
--   {"channel": null, "auction": null, "n": 7}

-- case: A key beside ROLLUP
CREATE VIEW a_key_beside_rollup AS SELECT bidder, channel, count(*) AS n FROM bids GROUP BY bidder, ROLLUP (channel);
-- expect rows a_key_beside_rollup:
--   {"bidder": 10, "channel": "web", "n": 3}
--   {"bidder": 10, "channel": null, "n": 3}
--   {"bidder": 11, "channel": "app", "n": 2}
--   {"bidder": 11, "channel": null, "n": 2}
--   {"bidder": 12, "channel": "web", "n": 1}
--   {"bidder": 12, "channel": null, "n": 1}
--   {"bidder": 12, "channel": null, "n": 2}

-- case: Two ROLLUPs are multiplied
CREATE VIEW two_rollups_are_multiplied AS SELECT channel, auction, count(*) AS n FROM bids GROUP BY ROLLUP (channel), ROLLUP (auction);
-- expect rows two_rollups_are_multiplied:
--   {"channel": "app", "auction": 1, "n": 1}
--   {"channel": "app", "auction": 2, "n": 1}
--   {"channel": "app", "auction": null, "n": 2}
--   {"channel": "web", "auction": 1, "n": 2}
--   {"channel": "web", "auction": 2, "n": 2}
--   {"channel": "web", "auction": null, "n": 4}
--   {"channel": null, "auction": 1, "n": 3}
--   {"channel": null, "auction": 2, "n": 3}
--   {"channel": null, "auction": 3, "n": 1}
--   {"channel": null, "auction": 3, "n": 1}
--   {"channel": null, "auction": null, "n": 1}
--   {"channel": null, "auction": null, "n": 7}

-- case: Columns before GROUPING SETS
CREATE VIEW columns_before_grouping_sets AS SELECT channel, auction, count(*) AS n FROM bids GROUP BY channel, auction GROUPING SETS ((channel), (auction));
-- expect rows columns_before_grouping_sets:
--   {"channel": "app", "auction": null, "n": 2}
--   {"channel": "web", "auction": null, "n": 4}
--   {"channel": null, "auction": 1, "n": 3}
--   {"channel": null, "auction": 2, "n": 3}
--   {"channel": null, "auction": 3, "n": 1}
--   {"channel": null, "auction": null, "n": 1}

-- case: An aggregate of a key in ROLLUP
CREATE VIEW an_aggregate_of_a_key_in_rollup AS SELECT auction, sum(auction) AS s FROM bids GROUP BY ROLLUP (auction);
-- expect rows an_aggregate_of_a_key_in_rollup:
--   {"auction": 1, "s": 3}
--   {"auction": 2, "s": 6}
--   {"auction": 3, "s": 3}
--   {"auction": null, "s": 12}

-- case: Groups of groups
CREATE VIEW groups_of_groups AS SELECT n, count(*) AS auctions FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction) GROUP BY n;
-- expect rows groups_of_groups:
--   {"n": 1, "auctions": 1}
--   {"n": 3, "auctions": 2}

-- case: The greatest of sums
CREATE VIEW the_greatest_of_sums AS SELECT max(s) AS top FROM (SELECT auction, sum(price) AS s FROM bids GROUP BY auction);
-- expect rows the_greatest_of_sums:
--   {"top": 620}

-- case: Groups of a view
CREATE VIEW groups_of_a_view AS SELECT n, count(*) AS auctions FROM hot GROUP BY n;
-- expect rows groups_of_a_view:
--   {"n": 1, "auctions": 1}
--   {"n": 3, "auctions": 2}

-- case: Groups of distinct rows
CREATE VIEW groups_of_distinct_rows AS SELECT channel, count(*) AS n FROM (SELECT DISTINCT auction, channel FROM bids) GROUP BY channel;
-- expect rows groups_of_distinct_rows:
--   {"channel": "app", "n": 2}
--   {"channel": "web", "n": 2}
--   {"channel": null, "n": 1}

-- case: A condition over groups
CREATE VIEW a_condition_over_groups AS SELECT auction, n FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction) WHERE n > 1 AND auction < 2;
-- expect rows a_condition_over_groups:
--   {"auction": 1, "n": 3}

-- case: Groups of exploded rows
CREATE VIEW groups_of_exploded_rows AS SELECT tag, count(*) AS n FROM bids LATERAL VIEW explode(tags) t AS tag GROUP BY tag;
-- expect rows groups_of_exploded_rows:
--   {"tag": "late", "n": 1}
--   {"tag": "map", "n": 3}
--   {"tag": "new", "n": 1}
--   {"tag": "old", "n": 2}

-- case: Groups of a union
CREATE VIEW groups_of_a_union AS SELECT id, count(*) AS n FROM (SELECT auction AS id FROM bids UNION ALL SELECT bidder FROM clicks) GROUP BY id;
-- expect rows groups_of_a_union:
--   {"id": 1, "n": 3}
--   {"id": 10, "n": 1}
--   {"id": 13, "n": 1}
--   {"id": 2, "n": 3}
--   {"id": 3, "n": 1}

-- case: The first rows of each key
CREATE VIEW the_first_rows_of_each_key AS SELECT auction, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, ts) AS place FROM bids) WHERE place <= 2;
-- expect rows the_first_rows_of_each_key:
--   {"auction": 1, "bidder": 10, "price": 250}
--   {"auction": 1, "bidder": 11, "price": 250}
--   {"auction": 2, "bidder": 10, "price": 90}
--   {"auction": 2, "bidder": 12, "price": 70}
--   {"auction": 3, "bidder": 12, "price": null}

-- case: The number of a row is shown
CREATE VIEW the_number_of_a_row_is_shown AS SELECT auction, price, place FROM (SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, ts DESC) AS place FROM bids) WHERE place < 3;
-- expect rows the_number_of_a_row_is_shown:
--   {"auction": 1, "price": 250, "place": 1}
--   {"auction": 1, "price": 250, "place": 2}
--   {"auction": 2, "price": 70, "place": 2}
--   {"auction": 2, "price": 90, "place": 1}
--   {"auction": 3, "price": null, "place": 1}

-- case: The last row of each key
CREATE VIEW the_last_row_of_each_key AS SELECT bidder, auction FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts DESC) AS r FROM bids) WHERE r = 1;
-- expect rows the_last_row_of_each_key:
--   {"bidder": 10, "auction": 1}
--   {"bidder": 11, "auction": 2}
--   {"bidder": 12, "auction": 3}

-- case: A number bounded from the other side
CREATE VIEW a_number_bounded_from_the_other_side AS SELECT auction FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price) AS r FROM bids) WHERE 2 >= r;
-- expect rows a_number_bounded_from_the_other_side:
--   {"auction": 2}
--   {"auction": 3}

-- case: More conditions beside the number
CREATE VIEW more_conditions_beside_the_number AS SELECT auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS r FROM bids) WHERE r <= 1 AND price > 100;
-- expect rows more_conditions_beside_the_number:
--   {"auction": 1, "price": 250}

-- case: ORDER BY and LIMIT
CREATE VIEW order_by_and_limit AS SELECT auction, price FROM bids ORDER BY price DESC LIMIT 2;
-- expect rows order_by_and_limit:
--   {"auction": 1, "price": 250}
--   {"auction": 1, "price": 250}

-- case: ORDER BY what is not shown
CREATE VIEW order_by_what_is_not_shown AS SELECT auction FROM bids ORDER BY ts LIMIT 2;
-- expect rows order_by_what_is_not_shown:
--   {"auction": 1}
--   {"auction": 2}

-- case: NULLS LAST
CREATE VIEW nulls_last AS SELECT auction, price FROM bids ORDER BY price NULLS LAST, auction LIMIT 2;
-- expect rows nulls_last:
--   {"auction": 2, "price": 40}
--   {"auction": 2, "price": 70}

-- case: NULL comes first upwards
CREATE VIEW null_comes_first_upwards AS SELECT auction, price FROM bids ORDER BY price LIMIT 1;
-- expect rows null_comes_first_upwards:
--   {"auction": 3, "price": null}

-- case: The first groups
CREATE VIEW the_first_groups AS SELECT auction, sum(price) AS s FROM bids GROUP BY auction ORDER BY s DESC LIMIT 1;
-- expect rows the_first_groups:
--   {"auction": 1, "s": 620}

-- case: The first groups in a subquery
CREATE VIEW the_first_groups_in_a_subquery AS SELECT auction FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction) ORDER BY n DESC, auction LIMIT 2;
-- expect rows the_first_groups_in_a_subquery:
--   {"auction": 1}
--   {"auction": 2}

-- case: DISTINCT over groups
CREATE VIEW distinct_over_groups AS SELECT DISTINCT n FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction);
-- expect rows distinct_over_groups:
--   {"n": 1}
--   {"n": 3}

-- case: ORDER BY the number of a column
CREATE VIEW order_by_the_number_of_a_column AS SELECT auction, price FROM bids ORDER BY 2 DESC, 1 LIMIT 3;
-- expect rows order_by_the_number_of_a_column:
--   {"auction": 1, "price": 120}
--   {"auction": 1, "price": 250}
--   {"auction": 1, "price": 250}
