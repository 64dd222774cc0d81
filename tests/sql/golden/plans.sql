-- The stages that queries become.

-- case: A filter
CREATE VIEW a_filter AS SELECT auction, price FROM bids WHERE price > 100 AND channel = 'web';
-- expect plan a_filter:
--   scan bids | where price > 100 AND channel = 'web' | auction, price
--   append auction, price
--   gives auction, price

-- case: Two conditions in two queries are one
CREATE VIEW two_conditions_in_two_queries_are_one AS SELECT a FROM (SELECT auction AS a, price FROM bids WHERE price > 1) WHERE price < 5;
-- expect plan two_conditions_in_two_queries_are_one:
--   scan bids | where price > 1 AND price < 5 | auction
--   append a
--   gives a

-- case: Every column as it is
CREATE VIEW every_column_as_it_is AS SELECT * FROM bids;
-- expect plan every_column_as_it_is:
--   scan bids | auction, bidder, price, channel, tags, ts
--   append auction, bidder, price, channel, tags, ts
--   gives auction, bidder, price, channel, tags, ts

-- case: Columns are pushed through subqueries
CREATE VIEW columns_are_pushed_through_subqueries AS SELECT y * 2 AS z FROM (SELECT x + 1 AS y FROM (SELECT price AS x, tags FROM bids));
-- expect plan columns_are_pushed_through_subqueries:
--   scan bids | (price + 1) * 2
--   append z
--   gives z

-- case: A group
CREATE VIEW a_group AS SELECT auction, count(*) AS n, max(price) AS top FROM bids GROUP BY auction;
-- expect plan a_group:
--   scan bids | auction, price
--   aggregate by auction | over global | on change | retracting | n = count(*), top = max
--   gives auction, n, top

-- case: A computed key
CREATE VIEW a_computed_key AS SELECT lower(channel) AS c, count(*) AS n FROM bids GROUP BY lower(channel);
-- expect plan a_computed_key:
--   scan bids | LOWER(channel)
--   aggregate by c | over global | on change | retracting | n = count(*)
--   gives c, n

-- case: An expression over aggregates
CREATE VIEW an_expression_over_aggregates AS SELECT auction, max(price) - min(price) AS spread FROM bids GROUP BY auction;
-- expect plan an_expression_over_aggregates:
--   scan bids | auction, price, price
--   aggregate by auction | over global | on change | retracting | max_price = max, min_price = min
--   then auction, spread = max_price - min_price
--   gives auction, spread

-- case: FILTER is a CASE
CREATE VIEW filter_is_a_case AS SELECT count(*) FILTER (WHERE price > 1) AS n, sum(price) FILTER (WHERE auction = 1) AS s FROM bids;
-- expect plan filter_is_a_case:
--   scan bids | CASE WHEN price > 1 THEN 1 END, CASE WHEN auction = 1 THEN price END
--   aggregate by nothing | over global | on change | retracting | n = count, s = sum
--   gives n, s

-- case: HAVING is a condition behind
CREATE VIEW having_is_a_condition_behind AS SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING count(*) > 5 AND max(price) < 9;
-- expect plan having_is_a_condition_behind:
--   scan bids | auction, price
--   aggregate by auction | over global | on change | retracting | n = count(*), max_price = max
--   then auction, n where n > 5 AND max_price < 9
--   gives auction, n

-- case: One aggregate for two columns
CREATE VIEW one_aggregate_for_two_columns AS SELECT count(*) AS n, count(*) * 2 AS m FROM bids;
-- expect plan one_aggregate_for_two_columns:
--   scan bids | no columns
--   aggregate by nothing | over global | on change | retracting | n = count(*)
--   then n, m = n * 2
--   gives n, m

-- case: TUMBLE
CREATE VIEW tumble AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect plan tumble:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: HOP
CREATE VIEW hop AS SELECT window_start, window_end, count(*) AS n FROM HOP(bids, ts, '5 seconds', '10 seconds') GROUP BY window_start, window_end;
-- expect plan hop:
--   scan bids | no columns
--   aggregate by nothing | over hopping 10s every 5s | on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: HOP as long as it slides is TUMBLE
CREATE VIEW hop_as_long_as_it_slides_is_tumble AS SELECT window_start, window_end, count(*) AS n FROM HOP(bids, ts, '10 seconds', '10 seconds') GROUP BY window_start, window_end;
-- expect plan hop_as_long_as_it_slides_is_tumble:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: CUMULATE
CREATE VIEW cumulate AS SELECT window_start, window_end, count(*) AS n FROM CUMULATE(bids, ts, '1 hour', '1 day') GROUP BY window_start, window_end;
-- expect plan cumulate:
--   scan bids | no columns
--   aggregate by nothing | over cumulating 1d by 1h | on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: SESSION
CREATE VIEW session AS SELECT window_start, window_end, bidder, count(*) AS n FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '30' MINUTE)) GROUP BY window_start, window_end, bidder;
-- expect plan session:
--   scan bids | bidder
--   aggregate by bidder | over session, gap 30min | on change | retracting | n = count(*)
--   gives window_start, window_end, bidder, n

-- case: SESSION with a gap of its own
CREATE VIEW session_with_a_gap_of_its_own AS SELECT bidder, count(*) AS n FROM bids GROUP BY bidder, SESSION(ts, make_dt_interval(0, 0, 0, auction));
-- expect plan session_with_a_gap_of_its_own:
--   scan bids | bidder
--   aggregate by bidder | over session, gap MAKE_DT_INTERVAL(0, 0, 0, `auction`) | on change | retracting | n = count(*)
--   then bidder, n, $window_start = window_start, $window_end = window_end
--   gives bidder, n

-- case: COUNT_WINDOW
CREATE VIEW count_window AS SELECT window_index, auction, count(*) AS n FROM TABLE(COUNT_WINDOW(TABLE bids, 100, 10)) GROUP BY window_index, auction;
-- expect plan count_window:
--   scan bids | auction
--   aggregate by auction | over 100 records every 10 | on change | retracting | n = count(*)
--   then window_index, auction, n
--   gives window_index, auction, n

-- case: CALENDAR
CREATE VIEW calendar AS SELECT window_start, window_end, count(*) AS n FROM TABLE(CALENDAR(TABLE bids, DESCRIPTOR(ts), 'month', 'Europe/Berlin')) GROUP BY window_start, window_end;
-- expect plan calendar:
--   scan bids | no columns
--   aggregate by nothing | over calendar month in Europe/Berlin | on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: Months in INTERVAL are not needed: CALENDAR has them
CREATE VIEW months_in_interval_are_not_needed_calendar_has_them AS SELECT window_start, window_end, count(*) AS n FROM TABLE(CALENDAR(TABLE bids, DESCRIPTOR(ts), 'year')) GROUP BY window_start, window_end;
-- expect plan months_in_interval_are_not_needed_calendar_has_them:
--   scan bids | no columns
--   aggregate by nothing | over calendar year in UTC | on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: Processing time
CREATE VIEW processing_time AS SELECT sensor, max(value) AS top FROM readings GROUP BY sensor, TUMBLE(seen, INTERVAL '10' SECOND);
-- expect plan processing_time:
--   scan readings | sensor, value
--   aggregate by sensor | over tumbling 10s | on change | retracting | top = max
--   then sensor, top, $window_start = window_start, $window_end = window_end
--   gives sensor, top

-- case: Processing time of a query
CREATE VIEW processing_time_of_a_query AS SELECT count(*) AS n FROM (SELECT sensor, PROCTIME() AS t FROM readings) GROUP BY TUMBLE(t, INTERVAL '10' SECOND);
-- expect plan processing_time_of_a_query:
--   scan readings | no columns
--   aggregate by nothing | over tumbling 10s | on change | retracting | n = count(*)
--   then n, $window_start = window_start, $window_end = window_end
--   gives n

-- case: EMIT ON CLOSE
CREATE VIEW emit_on_close AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CLOSE;
-- expect plan emit_on_close:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | when the window closes, late on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: EMIT with everything
CREATE VIEW emit_with_everything AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ON CLOSE EARLY EVERY INTERVAL '1' SECOND LATE EVERY 10 ROWS ACCUMULATING ALLOWED LATENESS INTERVAL '1' MINUTE RETAIN INTERVAL '1' DAY;
-- expect plan emit_with_everything:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | when the window closes, early every 1s, late repeatedly (after 10 records) | accumulating | lateness 1min | n = count(*)
--   gives window_start, window_end, n, kept 86400 s

-- case: Clauses in another order
CREATE VIEW clauses_in_another_order AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end RETAIN INTERVAL '1' DAY ALLOWED LATENESS INTERVAL '1' MINUTE DISCARDING EMIT EVERY INTERVAL '1' MINUTE ALIGNED;
-- expect plan clauses_in_another_order:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | every 1min, aligned | discarding | lateness 1min | n = count(*)
--   gives window_start, window_end, n, kept 86400 s

-- case: EARLY alone
CREATE VIEW early_alone AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT EARLY EVERY INTERVAL '5' SECOND;
-- expect plan early_alone:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | when the window closes, early every 5s, late on change | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: AFTER an interval
CREATE VIEW after_an_interval AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT REPEATEDLY (AFTER INTERVAL '5' SECOND ALIGNED);
-- expect plan after_an_interval:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | every 5s, aligned | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: AFTER FRACTION
CREATE VIEW after_fraction AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT AFTER FRACTION 0.9;
-- expect plan after_fraction:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | when 0.9 of the data has arrived | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: ONCE
CREATE VIEW once AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ONCE (EVERY 5 ROWS);
-- expect plan once:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | once (repeatedly (after 5 records)) | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: Triggers inside one another
CREATE VIEW triggers_inside_one_another AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end EMIT ANY OF (ALL OF (AFTER 5 ROWS, AFTER INTERVAL '1' SECOND), IN ORDER (AFTER 1 ROW, (AFTER 9 ROWS) UNTIL ON CLOSE));
-- expect plan triggers_inside_one_another:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | any of (all of (after 5 records; 1s after the first record); in order (after 1 record; (after 9 records) until (when the window closes, late on change))) | retracting | n = count(*)
--   gives window_start, window_end, n

-- case: RETAIN over rows
CREATE VIEW retain_over_rows AS SELECT auction, ts FROM bids RETAIN INTERVAL '2' HOURS;
-- expect plan retain_over_rows:
--   scan bids | auction, ts
--   append auction, ts
--   gives auction, ts, kept 7200 s

-- case: Words of clauses as columns
CREATE VIEW words_of_clauses_as_columns AS SELECT channel AS emit, price AS retain FROM bids;
-- expect plan words_of_clauses_as_columns:
--   scan bids | channel, price
--   append emit, retain
--   gives emit, retain

-- case: Groups of groups
CREATE VIEW groups_of_groups AS SELECT n, count(*) AS auctions FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction) GROUP BY n;
-- expect plan groups_of_groups:
--   scan bids | auction
--   aggregate by auction | over global | on change | retracting | n = count(*)
--   take n, $id0 = auction
--   regroup by n | auctions = count(*)
--   gives n, auctions

-- case: Groups of groups with a condition between
CREATE VIEW groups_of_groups_with_a_condition_between AS SELECT auction, max(n) AS m FROM (SELECT auction, bidder, count(*) AS n FROM bids GROUP BY auction, bidder) WHERE n > 1 GROUP BY auction;
-- expect plan groups_of_groups_with_a_condition_between:
--   scan bids | auction, bidder
--   aggregate by auction, bidder | over global | on change | retracting | n = count(*)
--   take auction, @m = n, $id1 = bidder where n > 1
--   regroup by auction | m = max
--   gives auction, m

-- case: A view over a view shares nothing it need not
CREATE VIEW a_view_over_a_view_shares_nothing_it_need_not AS SELECT n FROM hot WHERE n > 5;
-- expect plan a_view_over_a_view_shares_nothing_it_need_not:
--   scan bids | auction
--   aggregate by auction | over global | on change | retracting | n = count(*)
--   then n, $auction = auction where n > 5
--   gives n

-- case: ROW_NUMBER without its number
CREATE VIEW row_number_without_its_number AS SELECT auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS r FROM bids) WHERE r <= 3;
-- expect plan row_number_without_its_number:
--   scan bids | auction, bidder, price, channel, tags, ts
--   append auction, bidder, price, channel, tags, ts
--   first 3 by auction | price down nulls last
--   then auction, price, $row, $more
--   gives auction, price

-- case: ROW_NUMBER with its number
CREATE VIEW row_number_with_its_number AS SELECT * FROM (SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC NULLS LAST, ts) AS r FROM bids) WHERE r <= 3;
-- expect plan row_number_with_its_number:
--   scan bids | auction, bidder, price, channel, tags, ts
--   append auction, bidder, price, channel, tags, ts
--   first 3 by auction | price down nulls last, ts up nulls first | rank r
--   then auction, price, r
--   gives auction, price, r

-- case: ROW_NUMBER by an expression
CREATE VIEW row_number_by_an_expression AS SELECT auction FROM (SELECT auction, ROW_NUMBER() OVER (PARTITION BY lower(channel) ORDER BY abs(price)) AS r FROM bids) WHERE r = 1;
-- expect plan row_number_by_an_expression:
--   scan bids | auction, bidder, price, channel, tags, ts, LOWER(channel), ABS(price)
--   append auction, bidder, price, channel, tags, ts, key_0, $by0
--   first 1 by key_0 | $by0 up nulls first
--   then auction, $key_0 = key_0
--   gives auction

-- case: LIMIT
CREATE VIEW limit AS SELECT auction, price FROM bids ORDER BY price DESC, auction LIMIT 10;
-- expect plan limit:
--   scan bids | auction, price
--   append auction, price
--   first 10 by nothing | price down nulls last, auction up nulls first
--   gives auction, price

-- case: DISTINCT
CREATE VIEW distinct AS SELECT DISTINCT channel FROM bids;
-- expect plan distinct:
--   scan bids | channel
--   append channel
--   once channel
--   gives channel

-- case: UNION ALL
CREATE VIEW union_all AS SELECT auction AS id FROM bids UNION ALL SELECT bidder FROM clicks;
-- expect plan union_all:
--   scan bids | auction
--   scan clicks | bidder
--   append id
--   gives id

-- case: UNION
CREATE VIEW union AS SELECT auction AS id FROM bids UNION SELECT bidder FROM clicks;
-- expect plan union:
--   scan bids | auction
--   scan clicks | bidder
--   append id
--   once id
--   gives id

-- case: ROLLUP
CREATE VIEW rollup AS SELECT channel, auction, count(*) AS n FROM bids GROUP BY ROLLUP (channel, auction);
-- expect plan rollup:
--   scan bids | project auction, bidder, price, channel, tags, ts | explode grouping_set, ARRAY(0, 1, 2), False | CASE WHEN grouping_set IN (0, 1) THEN channel END, CASE WHEN grouping_set IN (0) THEN auction END, grouping_set
--   aggregate by channel, auction, grouping_set | over global | on change | retracting | n = count(*)
--   then channel, auction, n, $grouping_set = grouping_set
--   gives channel, auction, n

-- case: Explode
CREATE VIEW explode AS SELECT tag, count(*) AS n FROM bids LATERAL VIEW explode(split(channel, '-')) t AS tag GROUP BY tag;
-- expect plan explode:
--   scan bids | project auction, bidder, price, channel, tags, ts | explode tag, SPLIT(channel, '-'), False | tag
--   aggregate by tag | over global | on change | retracting | n = count(*)
--   gives tag, n

-- case: A join to a table
CREATE VIEW a_join_to_a_table AS SELECT b.auction, i.name FROM bids b JOIN items i ON b.auction = i.id;
-- expect plan a_join_to_a_table:
--   scan bids | project auction, bidder, _of_price = price, channel, tags, ts | lookup items, (('auction', 'id'),), (Field(name='name', type=DataType(string)), Field(name='price', type=DataType(int64))), True | auction, name
--   append auction, name
--   gives auction, name

-- case: An outer join to a table
CREATE VIEW an_outer_join_to_a_table AS SELECT b.auction, i.name FROM bids b LEFT JOIN items i ON i.id = b.auction;
-- expect plan an_outer_join_to_a_table:
--   scan bids | project auction, bidder, _of_price = price, channel, tags, ts | lookup items, (('auction', 'id'),), (Field(name='name', type=DataType(string)), Field(name='price', type=DataType(int64))), False | auction, name
--   append auction, name
--   gives auction, name

-- case: A join by an expression
CREATE VIEW a_join_by_an_expression AS SELECT auction, name FROM bids JOIN items ON id = mod(auction, 100);
-- expect plan a_join_by_an_expression:
--   scan bids | project auction, bidder, _of_price = price, channel, tags, ts, _of_0 = (auction % 100) | lookup items, (('_of_0', 'id'),), (Field(name='name', type=DataType(string)), Field(name='price', type=DataType(int64))), True | auction, name
--   append auction, name
--   gives auction, name

-- case: A join with columns of one name
CREATE VIEW a_join_with_columns_of_one_name AS SELECT b.price AS bid, i.price AS asked FROM bids b JOIN items i ON i.id = b.auction WHERE b.price > i.price;
-- expect plan a_join_with_columns_of_one_name:
--   scan bids | project auction, bidder, _of_price = price, channel, tags, ts | lookup items, (('auction', 'id'),), (Field(name='name', type=DataType(string)), Field(name='price', type=DataType(int64))), True | where _of_price > price | _of_price, price
--   append bid, asked
--   gives bid, asked

-- case: A join as of processing time
CREATE VIEW a_join_as_of_processing_time AS SELECT b.auction, i.name FROM (SELECT *, PROCTIME() AS t FROM bids) AS b JOIN items FOR SYSTEM_TIME AS OF b.t AS i ON i.id = b.auction;
-- expect plan a_join_as_of_processing_time:
--   scan bids | project auction, bidder, _of_price = price, channel, tags, ts | lookup items, (('auction', 'id'),), (Field(name='name', type=DataType(string)), Field(name='price', type=DataType(int64))), True | auction, name
--   append auction, name
--   gives auction, name

-- case: Groups of joined rows
CREATE VIEW groups_of_joined_rows AS SELECT i.name, count(*) AS n FROM bids b JOIN items i ON i.id = b.auction GROUP BY i.name;
-- expect plan groups_of_joined_rows:
--   scan bids | project auction, bidder, _of_price = price, channel, tags, ts | lookup items, (('auction', 'id'),), (Field(name='name', type=DataType(string)), Field(name='price', type=DataType(int64))), True | name
--   aggregate by name | over global | on change | retracting | n = count(*)
--   gives name, n

-- case: A computed column of a source
CREATE SOURCE cents (price BIGINT, euros AS price / 100, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM LOG('cents'); CREATE VIEW in_euros AS SELECT euros FROM cents WHERE euros > 1;
-- expect plan in_euros:
--   scan cents | where (price / 100) > 1 | (price / 100)
--   append euros
--   gives euros

-- case: A source of files
CREATE SOURCE lines (a BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' MINUTES) FROM FILES('data/lines', format = 'csv', header = false, bounded = true); CREATE VIEW all_lines AS SELECT a FROM lines;
-- expect plan all_lines:
--   scan lines | a
--   append a
--   gives a

-- case: A generated source
CREATE SOURCE house FROM GENERATOR('nexmark', 'bid', rate = 100); CREATE VIEW prices AS SELECT price FROM house;
-- expect plan prices:
--   scan house | price
--   append price
--   gives price

-- case: A sink of a view
CREATE SINK hot_changes FROM hot INTO LOG('hot_changes');
-- expect plan hot_changes:
--   scan bids | auction
--   aggregate by auction | over global | on change | retracting | n = count(*)
--   gives auction, n, into LogTopic(topic='hot_changes', start='beginning', bounded=False)

-- case: A sink of a query
CREATE SINK dear INTO LOG('dear_bids') AS SELECT auction, price FROM bids WHERE price > 1000;
-- expect plan dear:
--   scan bids | where price > 1000 | auction, price
--   append auction, price
--   gives auction, price, into LogTopic(topic='dear_bids', start='beginning', bounded=False)

-- case: A view with options
CREATE VIEW kept WITH (panes = '1 hour', retain = INTERVAL '1' DAY) AS SELECT window_start, window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
-- expect plan kept:
--   scan bids | no columns
--   aggregate by nothing | over tumbling 10s | on change | retracting | n = count(*)
--   gives window_start, window_end, n, kept 86400 s

-- case: Keywords in any case and comments
CREATE VIEW odd AS select /* which */ Auction, Count(*) as N -- how many
from bids group by AUCTION;
-- expect plan odd:
--   scan bids | auction
--   aggregate by auction | over global | on change | retracting | N = count(*)
--   then Auction = auction, N
--   gives Auction, N

-- case: A lambda and an element
CREATE VIEW a_lambda_and_an_element AS SELECT filter(tags, t -> t <> channel) AS others, tags[0] AS head, element_at(tags, 1) AS first_ FROM bids;
-- expect plan a_lambda_and_an_element:
--   scan bids | FILTER(tags, t -> t <> channel), tags[0], ELEMENT_AT(tags, 1)
--   append others, head, first_
--   gives others, head, first_

-- case: A quoted name
CREATE VIEW a_quoted_name AS SELECT `auction` AS `n` FROM `bids` WHERE `price` > 1;
-- expect plan a_quoted_name:
--   scan bids | where price > 1 | auction
--   append n
--   gives n

-- case: A map and a struct
CREATE VIEW a_map_and_a_struct AS SELECT m['x'] AS x, home.city AS city FROM clicks;
-- expect plan a_map_and_a_struct:
--   scan clicks | m['x'], home.city
--   append x, city
--   gives x, city
