-- The queries of the Nexmark suite that need no join of two streams, in the forms that are usual for Flink. Behind each is the
-- same question for DuckDB, over a table `bid` of all bids.

-- query q0
SELECT auction, bidder, price, dateTime, extra FROM bid
-- batch
SELECT auction, bidder, price, dateTime, extra FROM bid

-- query q1
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid
-- batch
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid

-- query q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0
-- batch
SELECT auction, price FROM bid WHERE auction % 123 = 0

-- query q10
SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS dt, DATE_FORMAT(dateTime, 'HH:mm') AS hm
FROM bid
-- batch
SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm FROM bid

-- query q11
SELECT B.bidder, count(*) AS bid_count, SESSION_START(B.dateTime, INTERVAL '10' SECOND) AS starttime,
       SESSION_END(B.dateTime, INTERVAL '10' SECOND) AS endtime
FROM bid B
GROUP BY B.bidder, SESSION(B.dateTime, INTERVAL '10' SECOND)
-- batch
WITH marked AS (
    SELECT bidder, dateTime, dateTime - lag(dateTime) OVER mine >= INTERVAL 10 SECOND AS breaks FROM bid
    WINDOW mine AS (PARTITION BY bidder ORDER BY dateTime)
), numbered AS (
    SELECT *, sum(CAST(coalesce(breaks, false) AS INT)) OVER (PARTITION BY bidder ORDER BY dateTime RANGE UNBOUNDED PRECEDING) AS n
    FROM marked
)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL 10 SECOND AS endtime
FROM numbered GROUP BY bidder, n

-- query q13
SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM (SELECT *, PROCTIME() AS p_time FROM bid) B
JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON mod(B.auction, 100) = S.key
-- batch
SELECT auction, bidder, price, dateTime, CAST(auction % 100 AS VARCHAR) AS value FROM bid WHERE auction % 100 < 50

-- query q14
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
            WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
-- batch
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- query q15
SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- batch
SELECT strftime(dateTime, '%Y-%m-%d') AS day, count(*), count(*) FILTER (WHERE price < 10000),
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000), count(*) FILTER (WHERE price >= 1000000),
       count(DISTINCT bidder), count(DISTINCT bidder) FILTER (WHERE price < 10000), count(DISTINCT auction),
       count(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid GROUP BY 1

-- query q16
SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, max(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`,
       count(*) AS total_bids, count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM bid
GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- batch
SELECT channel, strftime(dateTime, '%Y-%m-%d'), max(strftime(dateTime, '%H:%M')), count(*), count(DISTINCT bidder),
       count(DISTINCT auction) FILTER (WHERE price < 10000)
FROM bid GROUP BY 1, 2

-- query q17
SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids, min(price) AS min_price, max(price) AS max_price,
       avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
-- batch
SELECT auction, strftime(dateTime, '%Y-%m-%d'), count(*), count(*) FILTER (WHERE price < 10000), min(price), max(price), avg(price),
       CAST(sum(price) AS BIGINT)
FROM bid GROUP BY 1, 2

-- query q18
SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price) AS rank_number FROM bid
) WHERE rank_number <= 1
-- batch
SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price) <= 1

-- query q19
SELECT * FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number FROM bid
) WHERE rank_number <= 10
-- batch
SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number FROM bid QUALIFY rank_number <= 10

-- query q21
SELECT auction, bidder, price, channel,
       CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
-- batch
SELECT auction, bidder, price, channel,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')

-- query q22
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
       SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
-- batch
SELECT auction, bidder, price, channel, string_split(url, '/')[4], string_split(url, '/')[5], string_split(url, '/')[6] FROM bid
