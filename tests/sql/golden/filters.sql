-- Rows one by one: columns, conditions, arrays, unions.
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

-- case: All columns
CREATE VIEW all_columns AS SELECT * FROM bids WHERE auction = 3;
-- expect rows all_columns:
--   {"auction": 3, "bidder": 12, "price": null, "channel": null, "tags": null, "ts": "2026-01-01 00:00:08"}

-- case: All but some columns
CREATE VIEW all_but_some_columns AS SELECT * EXCEPT (tags, ts) FROM bids WHERE auction = 2;
-- expect rows all_but_some_columns:
--   {"auction": 2, "bidder": 10, "price": 90, "channel": "web"}
--   {"auction": 2, "bidder": 11, "price": 40, "channel": "app"}
--   {"auction": 2, "bidder": 12, "price": 70, "channel": "web"}

-- case: Columns with an alias of the source
CREATE VIEW columns_with_an_alias_of_the_source AS SELECT b.auction, b.price FROM bids AS b WHERE b.price > 100;
-- expect rows columns_with_an_alias_of_the_source:
--   {"auction": 1, "price": 120}
--   {"auction": 1, "price": 250}
--   {"auction": 1, "price": 250}

-- case: All columns of an alias
CREATE VIEW all_columns_of_an_alias AS SELECT b.* FROM bids b WHERE b.bidder = 12;
-- expect rows all_columns_of_an_alias:
--   {"auction": 2, "bidder": 12, "price": 70, "channel": "web", "tags": ["late"], "ts": "2026-01-01 00:00:04"}
--   {"auction": 3, "bidder": 12, "price": null, "channel": null, "tags": null, "ts": "2026-01-01 00:00:08"}

-- case: Names are told without regard to case
CREATE VIEW names_are_told_without_regard_to_case AS SELECT Auction, PRICE AS p FROM Bids WHERE PRICE = 40;
-- expect rows names_are_told_without_regard_to_case:
--   {"Auction": 2, "p": 40}

-- case: Computed columns
CREATE VIEW computed_columns AS SELECT auction, price * 2 AS double, upper(channel) AS c, coalesce(price, 0) AS p FROM bids;
-- expect rows computed_columns:
--   {"auction": 1, "double": 240, "c": "WEB", "p": 120}
--   {"auction": 1, "double": 500, "c": "APP", "p": 250}
--   {"auction": 1, "double": 500, "c": "WEB", "p": 250}
--   {"auction": 2, "double": 140, "c": "WEB", "p": 70}
--   {"auction": 2, "double": 180, "c": "WEB", "p": 90}
--   {"auction": 2, "double": 80, "c": "APP", "p": 40}
--   {"auction": 3, "double": null, "c": null, "p": 0}

-- case: A column without a name gets one
CREATE VIEW a_column_without_a_name_gets_one AS SELECT auction, price + 1 FROM bids WHERE price < 100;
-- expect rows a_column_without_a_name_gets_one:
--   {"auction": 2, "column_2": 41}
--   {"auction": 2, "column_2": 71}
--   {"auction": 2, "column_2": 91}

-- case: NULL is not true
CREATE VIEW null_is_not_true AS SELECT auction FROM bids WHERE price > 0;
-- expect rows null_is_not_true:
--   {"auction": 1}
--   {"auction": 1}
--   {"auction": 1}
--   {"auction": 2}
--   {"auction": 2}
--   {"auction": 2}

-- case: Conditions joined by AND and OR
CREATE VIEW conditions_joined_by_and_and_or AS SELECT auction, price FROM bids WHERE (price > 100 AND channel = 'web') OR price IS NULL;
-- expect rows conditions_joined_by_and_and_or:
--   {"auction": 1, "price": 120}
--   {"auction": 1, "price": 250}
--   {"auction": 3, "price": null}

-- case: NOT and IN and BETWEEN
CREATE VIEW not_and_in_and_between AS SELECT auction, price FROM bids WHERE NOT auction IN (1, 3) AND price BETWEEN 40 AND 80;
-- expect rows not_and_in_and_between:
--   {"auction": 2, "price": 40}
--   {"auction": 2, "price": 70}

-- case: LIKE
CREATE VIEW like AS SELECT DISTINCT channel FROM bids WHERE channel LIKE 'w%';
-- expect rows like:
--   {"channel": "web"}

-- case: CASE in a column
CREATE VIEW case_in_a_column AS SELECT auction, CASE WHEN price >= 100 THEN 'dear' WHEN price IS NULL THEN 'none' ELSE 'cheap' END AS kind FROM bids;
-- expect rows case_in_a_column:
--   {"auction": 1, "kind": "dear"}
--   {"auction": 1, "kind": "dear"}
--   {"auction": 1, "kind": "dear"}
--   {"auction": 2, "kind": "cheap"}
--   {"auction": 2, "kind": "cheap"}
--   {"auction": 2, "kind": "cheap"}
--   {"auction": 3, "kind": "none"}

-- case: CASE with a value
CREATE VIEW case_with_a_value AS SELECT CASE channel WHEN 'web' THEN 1 WHEN 'app' THEN 2 END AS c, auction FROM bids;
-- expect rows case_with_a_value:
--   {"c": 1, "auction": 1}
--   {"c": 1, "auction": 1}
--   {"c": 1, "auction": 2}
--   {"c": 1, "auction": 2}
--   {"c": 2, "auction": 1}
--   {"c": 2, "auction": 2}
--   {"c": null, "auction": 3}

-- case: A cast
CREATE VIEW a_cast AS SELECT CAST(price AS STRING) AS p, CAST('7' AS INT) AS seven FROM bids WHERE auction = 2;
-- expect rows a_cast:
--   {"p": "40", "seven": 7}
--   {"p": "70", "seven": 7}
--   {"p": "90", "seven": 7}

-- case: A text that looks like a function
CREATE VIEW a_text_that_looks_like_a_function AS SELECT 'now()' AS a, 'current_date' AS b, 'rand(' AS c FROM bids WHERE price = 40;
-- expect rows a_text_that_looks_like_a_function:
--   {"a": "now()", "b": "current_date", "c": "rand("}

-- case: A subquery in FROM
CREATE VIEW a_subquery_in_from AS SELECT a, p + 1 AS q FROM (SELECT auction AS a, price AS p FROM bids WHERE price > 100) WHERE p < 200;
-- expect rows a_subquery_in_from:
--   {"a": 1, "q": 121}

-- case: Two subqueries inside one another
CREATE VIEW two_subqueries_inside_one_another AS SELECT x FROM (SELECT y AS x FROM (SELECT auction AS y, price FROM bids) WHERE price < 100);
-- expect rows two_subqueries_inside_one_another:
--   {"x": 2}
--   {"x": 2}
--   {"x": 2}

-- case: A CTE
CREATE VIEW a_cte AS WITH dear AS (SELECT auction, price FROM bids WHERE price > 100) SELECT auction FROM dear;
-- expect rows a_cte:
--   {"auction": 1}
--   {"auction": 1}
--   {"auction": 1}

-- case: A CTE of a CTE
CREATE VIEW a_cte_of_a_cte AS WITH a AS (SELECT * FROM bids WHERE price > 50), b AS (SELECT auction, price FROM a WHERE price < 100) SELECT * FROM b;
-- expect rows a_cte_of_a_cte:
--   {"auction": 2, "price": 70}
--   {"auction": 2, "price": 90}

-- case: A CTE with names for its columns
CREATE VIEW a_cte_with_names_for_its_columns AS WITH t(x, y) AS (SELECT auction, price FROM bids), u(z) AS (SELECT x FROM t WHERE y > 200) SELECT z FROM u;
-- expect rows a_cte_with_names_for_its_columns:
--   {"z": 1}
--   {"z": 1}

-- case: A CTE hides a source
CREATE VIEW a_cte_hides_a_source AS WITH bids AS (SELECT auction FROM bids WHERE price = 90) SELECT auction FROM bids;
-- expect rows a_cte_hides_a_source:
--   {"auction": 2}

-- case: Explode with LATERAL VIEW
CREATE VIEW explode_with_lateral_view AS SELECT auction, tag FROM bids LATERAL VIEW explode(tags) t AS tag;
-- expect rows explode_with_lateral_view:
--   {"auction": 1, "tag": "map"}
--   {"auction": 1, "tag": "new"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 2, "tag": "late"}
--   {"auction": 2, "tag": "map"}
--   {"auction": 2, "tag": "map"}

-- case: Explode that keeps empty arrays
CREATE VIEW explode_that_keeps_empty_arrays AS SELECT auction, tag FROM bids LATERAL VIEW OUTER explode(tags) t AS tag;
-- expect rows explode_that_keeps_empty_arrays:
--   {"auction": 1, "tag": "map"}
--   {"auction": 1, "tag": "new"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 2, "tag": "late"}
--   {"auction": 2, "tag": "map"}
--   {"auction": 2, "tag": "map"}
--   {"auction": 2, "tag": null}
--   {"auction": 3, "tag": null}

-- case: UNNEST
CREATE VIEW unnest AS SELECT auction, t.tag FROM bids CROSS JOIN UNNEST(tags) AS t(tag);
-- expect rows unnest:
--   {"auction": 1, "tag": "map"}
--   {"auction": 1, "tag": "new"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 2, "tag": "late"}
--   {"auction": 2, "tag": "map"}
--   {"auction": 2, "tag": "map"}

-- case: Explode in SELECT
CREATE VIEW explode_in_select AS SELECT auction, explode(tags) AS tag FROM bids;
-- expect rows explode_in_select:
--   {"auction": 1, "tag": "map"}
--   {"auction": 1, "tag": "new"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 1, "tag": "old"}
--   {"auction": 2, "tag": "late"}
--   {"auction": 2, "tag": "map"}
--   {"auction": 2, "tag": "map"}

-- case: An array in the query is exploded
CREATE VIEW an_array_in_the_query_is_exploded AS SELECT auction, n FROM bids LATERAL VIEW explode(array(1, 2)) t AS n WHERE price = 40;
-- expect rows an_array_in_the_query_is_exploded:
--   {"auction": 2, "n": 1}
--   {"auction": 2, "n": 2}

-- case: UNION ALL
CREATE VIEW union_all AS SELECT auction AS id, 'bid' AS what FROM bids UNION ALL SELECT bidder, 'click' FROM clicks;
-- expect rows union_all:
--   {"id": 1, "what": "bid"}
--   {"id": 1, "what": "bid"}
--   {"id": 1, "what": "bid"}
--   {"id": 10, "what": "click"}
--   {"id": 13, "what": "click"}
--   {"id": 2, "what": "bid"}
--   {"id": 2, "what": "bid"}
--   {"id": 2, "what": "bid"}
--   {"id": 3, "what": "bid"}

-- case: UNION ALL of three
CREATE VIEW union_all_of_three AS SELECT auction AS id FROM bids UNION ALL SELECT bidder FROM bids UNION ALL SELECT bidder FROM clicks;
-- expect rows union_all_of_three:
--   {"id": 10}
--   {"id": 10}
--   {"id": 10}
--   {"id": 10}
--   {"id": 11}
--   {"id": 11}
--   {"id": 12}
--   {"id": 12}
--   {"id": 13}
--   {"id": 1}
--   {"id": 1}
--   {"id": 1}
--   {"id": 2}
--   {"id": 2}
--   {"id": 2}
--   {"id": 3}

-- case: UNION gives every row once
CREATE VIEW union_gives_every_row_once AS SELECT bidder FROM bids UNION SELECT bidder FROM clicks;
-- expect rows union_gives_every_row_once:
--   {"bidder": 10}
--   {"bidder": 11}
--   {"bidder": 12}
--   {"bidder": 13}

-- case: DISTINCT
CREATE VIEW distinct AS SELECT DISTINCT auction, channel FROM bids;
-- expect rows distinct:
--   {"auction": 1, "channel": "app"}
--   {"auction": 1, "channel": "web"}
--   {"auction": 2, "channel": "app"}
--   {"auction": 2, "channel": "web"}
--   {"auction": 3, "channel": null}

-- case: DISTINCT of an expression
CREATE VIEW distinct_of_an_expression AS SELECT DISTINCT price > 100 AS dear FROM bids;
-- expect rows distinct_of_an_expression:
--   {"dear": false}
--   {"dear": null}
--   {"dear": true}

-- case: Fields of a struct
CREATE VIEW fields_of_a_struct AS SELECT c.home.city AS city, home.zip AS zip FROM clicks AS c;
-- expect rows fields_of_a_struct:
--   {"city": "Bern", "zip": 3000}
--   {"city": null, "zip": null}

-- case: A view over a view
CREATE VIEW dear_bids AS SELECT auction, price FROM bids WHERE price > 100; CREATE VIEW dearest AS SELECT auction FROM dear_bids WHERE price > 200;
-- expect rows dearest:
--   {"auction": 1}
--   {"auction": 1}

-- case: A quote in a text
CREATE VIEW a_quote_in_a_text AS SELECT 'it''s' AS a, 'it\'s' AS b, "it's" AS c, '''' AS d FROM bids WHERE price = 40;
-- expect rows a_quote_in_a_text:
--   {"a": "it's", "b": "it's", "c": "it's", "d": "'"}

-- case: UNION ALL of numbers of two widths
CREATE VIEW union_all_of_numbers_of_two_widths AS SELECT auction AS id FROM bids WHERE price = 40 UNION ALL SELECT 7 FROM clicks;
-- expect rows union_all_of_numbers_of_two_widths:
--   {"id": 2}
--   {"id": 7}
--   {"id": 7}
