-- The input: bids of an auction house. The generator creates 100 per second; once you have real bids, replace it with
-- FROM LOG('bids') or FROM FILES('data/bids', format = 'json').
CREATE SOURCE bids (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  date_time TIMESTAMP,
  WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND
) FROM GENERATOR('nexmark', kind = 'bid', rate = 100);

-- The number of bids per auction, for every ten seconds of event time.
CREATE VIEW hot_auctions AS
SELECT window_start, window_end, auction, count(*) AS bids, max(price) AS top_bid
FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction
RETAIN INTERVAL '1' HOUR;

-- Single bids that are unusually large.
CREATE VIEW large_bids AS
SELECT auction, bidder, price, date_time
FROM bids
WHERE price > 1000000
RETAIN INTERVAL '1' HOUR;
