-- The queries of the Nexmark suite, in the forms that are usual for Flink. Behind each is the same question for DuckDB, over tables
-- `bid`, `auction` and `person` of all events.

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

-- query q3
SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
-- batch
SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')

-- query q4
SELECT Q.category, AVG(Q.final) AS price FROM (
    SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category
) Q GROUP BY Q.category
-- batch
SELECT Q.category, AVG(Q.final) AS price FROM (
    SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category
) Q GROUP BY Q.category

-- query q5
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
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
    AND AuctionBids.num >= MaxBids.maxn
-- batch
WITH counted AS (
    SELECT auction, w, count(*) AS num
    FROM (SELECT auction, unnest(range(epoch_us(dateTime) // 2000000 - 4, epoch_us(dateTime) // 2000000 + 1)) AS w FROM bid)
    GROUP BY ALL
)
SELECT auction, num FROM counted QUALIFY num = max(num) OVER (PARTITION BY w)

-- query q6
SELECT seller, AVG(final) OVER (PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM (
    SELECT id, seller, final, dateTime FROM (
        SELECT A.id, A.seller, B.price AS final, B.dateTime,
            ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) AS place
        FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    ) WHERE place <= 1
) W
-- batch
SELECT seller, AVG(final) OVER (PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM (
    SELECT A.id, A.seller, B.price AS final, B.dateTime FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    QUALIFY ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) = 1
)

-- query q7
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (
    SELECT MAX(price) AS maxprice, window_end AS dateTime
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
) B1 ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime
-- batch
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (
    SELECT MAX(price) AS maxprice, make_timestamptz((epoch_us(dateTime) // 10000000 + 1) * 10000000) AS dateTime
    FROM bid GROUP BY 2
) B1 ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime

-- query q8
SELECT P.id, P.name, P.starttime FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime, count(*) AS n
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end
) P JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime, count(*) AS n
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end
) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime
-- batch
SELECT P.id, P.name, P.starttime FROM (
    SELECT DISTINCT id, name, make_timestamptz(epoch_us(dateTime) // 10000000 * 10000000) AS starttime FROM person
) P JOIN (
    SELECT DISTINCT seller, make_timestamptz(epoch_us(dateTime) // 10000000 * 10000000) AS starttime FROM auction
) A ON P.id = A.seller AND P.starttime = A.starttime

-- query q9
SELECT id, itemName, seller, category, auction, bidder, price, bid_dateTime FROM (
    SELECT A.id, A.itemName, A.seller, A.category, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime,
        ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC, B.bidder) AS rownum
    FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
) WHERE rownum <= 1
-- batch
SELECT A.id, A.itemName, A.seller, A.category, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime
FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
QUALIFY ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC, B.bidder) = 1

-- query q20
SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, itemName, seller, category
FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10
-- batch
SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, itemName, seller, category
FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10

-- query q23
SELECT B.auction, B.price, P.name, A.itemName FROM bid B, person P, auction A
WHERE B.bidder = P.id AND B.auction = A.id AND A.category <> 11
-- batch
SELECT B.auction, B.price, P.name, A.itemName FROM bid B, person P, auction A
WHERE B.bidder = P.id AND B.auction = A.id AND A.category <> 11
