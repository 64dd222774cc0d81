-- What comes in: bids of an auction house. The generator makes them up, 100 a second; when you have bids of your own,
-- put FROM LOG('bids') or FROM FILES('data/bids', format = 'json') in its place.
CREATE SOURCE bids (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  date_time TIMESTAMP,
  WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND
) FROM GENERATOR('nexmark', kind = 'bid', rate = 100);

-- How many bids each auction has got, for every ten seconds in which they were made.
CREATE VIEW hot_auctions AS
SELECT window_start, window_end, auction, count(*) AS bids, max(price) AS top_bid
FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction
RETAIN INTERVAL '1' HOUR;

-- Bids that are worth a look, one by one.
CREATE VIEW large_bids AS
SELECT auction, bidder, price, date_time
FROM bids
WHERE price > 1000000
RETAIN INTERVAL '1' HOUR;
