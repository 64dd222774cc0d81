-- The queries of the Nexmark suite, as every system is asked. Lines that say how a query is run and checked:
--   query    its name and what it is about
--   reads    the kinds of events in it
--   gives    'rows' that are written once, or a 'table' that changes
--   compares the columns that do not depend on how ties fall; all of them if the line is missing
-- The first text is for Millstream; behind `-- flink` and `-- duckdb` is the same question in those dialects, where it differs.
-- DuckDB has the tables `bid`, `auction` and `person` of all events.

-- query q0 bids as they are
-- reads bid
-- gives rows
SELECT auction, bidder, price, dateTime, extra FROM bid

-- query q1 prices in another currency
-- reads bid
-- gives rows
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid

-- query q2 bids of some auctions
-- reads bid
-- gives rows
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0
-- duckdb
SELECT auction, price FROM bid WHERE auction % 123 = 0

-- query q3 who sells in some states
-- reads auction person
-- gives rows
SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')

-- query q4 average closing price of a category
-- reads auction bid
-- gives table
SELECT Q.category, AVG(Q.final) AS price FROM (
    SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category
) Q GROUP BY Q.category
-- flink
SELECT Q.category, AVG(CAST(Q.final AS DOUBLE)) AS price FROM (
    SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category
) Q GROUP BY Q.category

-- query q5 auctions with the most bids in a while
-- reads bid
-- gives table
SELECT AuctionBids.auction, AuctionBids.num FROM (
    SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
) AS AuctionBids JOIN (
    SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime FROM (
        SELECT count(*) AS num, window_start AS starttime, window_end AS endtime
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    ) AS CountBids GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime AND AuctionBids.num >= MaxBids.maxn
-- duckdb
WITH counted AS (
    SELECT auction, w, count(*) AS num
    FROM (SELECT auction, unnest(range(epoch_us(dateTime) // 2000000 - 4, epoch_us(dateTime) // 2000000 + 1)) AS w FROM bid)
    GROUP BY ALL
)
SELECT auction, num FROM counted QUALIFY num = max(num) OVER (PARTITION BY w)

-- query q7 the dearest bid of every ten seconds
-- reads bid
-- gives table
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (
    SELECT MAX(price) AS maxprice, window_end AS dateTime
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
) B1 ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime
-- duckdb
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (
    SELECT MAX(price) AS maxprice, make_timestamptz((epoch_us(dateTime) // 10000000 + 1) * 10000000) AS dateTime
    FROM bid GROUP BY 2
) B1 ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime

-- query q8 people who sold soon after they came
-- reads auction person
-- gives table
SELECT P.id, P.name, P.starttime FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime, count(*) AS n
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end
) P JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime, count(*) AS n
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end
) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime
-- duckdb
SELECT P.id, P.name, P.starttime FROM (
    SELECT DISTINCT id, name, make_timestamptz(epoch_us(dateTime) // 10000000 * 10000000) AS starttime FROM person
) P JOIN (
    SELECT DISTINCT seller, make_timestamptz(epoch_us(dateTime) // 10000000 * 10000000) AS starttime FROM auction
) A ON P.id = A.seller AND P.starttime = A.starttime

-- query q9 the winning bid of every auction
-- reads auction bid
-- gives table
-- compares id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra, auction, price
SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra, auction, bidder, price,
       bid_dateTime, bid_extra FROM (
    SELECT A.id, A.itemName, A.description, A.initialBid, A.reserve, A.dateTime, A.expires, A.seller, A.category, A.extra,
        B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC) AS rownum
    FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
) WHERE rownum <= 1

-- query q10 bids into files
-- reads bid
-- gives rows
SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS dt, DATE_FORMAT(dateTime, 'HH:mm') AS hm
FROM bid
-- duckdb
SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm FROM bid

-- query q11 bids of a bidder in sessions
-- reads bid
-- gives table
SELECT B.bidder, count(*) AS bid_count, SESSION_START(B.dateTime, INTERVAL '10' SECOND) AS starttime,
       SESSION_END(B.dateTime, INTERVAL '10' SECOND) AS endtime
FROM bid B
GROUP BY B.bidder, SESSION(B.dateTime, INTERVAL '10' SECOND)
-- duckdb
WITH marked AS (
    SELECT bidder, dateTime, dateTime - lag(dateTime) OVER mine >= INTERVAL 10 SECOND AS breaks FROM bid
    WINDOW mine AS (PARTITION BY bidder ORDER BY dateTime)
), numbered AS (
    SELECT *, sum(CAST(coalesce(breaks, false) AS INT)) OVER (PARTITION BY bidder ORDER BY dateTime RANGE UNBOUNDED PRECEDING) AS n
    FROM marked
)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL 10 SECOND AS endtime
FROM numbered GROUP BY bidder, n

-- query q12 bids of a bidder in ten seconds of the clock
-- reads bid
-- gives table
-- compares nothing
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
-- duckdb
SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder

-- query q13 bids with a stored table
-- reads bid
-- gives rows
SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM (SELECT *, PROCTIME() AS now FROM bid) B
JOIN side_input FOR SYSTEM_TIME AS OF B.now AS S ON mod(B.auction, 10000) = S.key
-- flink
SELECT B.auction, B.bidder, B.price, B.dateTime, S.`value` FROM bid B JOIN side_input AS S ON mod(B.auction, 10000) = S.key
-- duckdb
SELECT auction, bidder, price, dateTime, CAST(auction % 10000 AS VARCHAR) AS value FROM bid

-- query q14 bids with more columns
-- reads bid
-- gives rows
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
            WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
-- duckdb
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- query q15 bidders and auctions of a day
-- reads bid
-- gives table
SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- duckdb
SELECT strftime(dateTime, '%Y-%m-%d') AS "day", count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY 1

-- query q16 the same by channel
-- reads bid
-- gives table
SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, max(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- duckdb
SELECT channel, strftime(dateTime, '%Y-%m-%d') AS "day", max(strftime(dateTime, '%H:%M')) AS "minute",
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY 1, 2

-- query q17 prices of an auction by day
-- reads bid
-- gives table
SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- flink
SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(CAST(price AS DOUBLE)) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- duckdb
SELECT auction, strftime(dateTime, '%Y-%m-%d') AS "day", count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, CAST(sum(price) AS BIGINT) AS sum_price
FROM bid GROUP BY 1, 2

-- query q18 the last bid of a bidder on an auction
-- reads bid
-- gives table
-- compares auction, bidder, dateTime
SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number FROM bid
) WHERE rank_number <= 1

-- query q19 the ten dearest bids of an auction
-- reads bid
-- gives table
-- compares auction, price, rank_number
SELECT auction, bidder, price, channel, url, dateTime, extra, rank_number FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
) WHERE rank_number <= 10

-- query q20 bids with their auction
-- reads auction bid
-- gives rows
SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
       itemName, description, initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10

-- query q21 the id of a channel
-- reads bid
-- gives rows
SELECT auction, bidder, price, channel,
       CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')

-- query q22 the folders of a url
-- reads bid
-- gives rows
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
       SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
-- duckdb
SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] AS dir2,
       string_split(url, '/')[6] AS dir3
FROM bid
