-- flow: ../flow.sql

-- test: the bids of one auction are counted for every ten seconds
INSERT INTO bids VALUES
  (1, 7, 150, '2026-01-01 00:00:01'),
  (1, 8, 250, '2026-01-01 00:00:02'),
  (2, 7, 100, '2026-01-01 00:00:03'),
  (1, 9, 300, '2026-01-01 00:00:11');
SELECT window_start, auction, bids, top_bid FROM hot_auctions;
-- | window_start        | auction | bids | top_bid |
-- | 2026-01-01 00:00:00 | 1       | 2    | 250     |
-- | 2026-01-01 00:00:00 | 2       | 1    | 100     |
-- | 2026-01-01 00:00:10 | 1       | 1    | 300     |

-- test: a late bid goes to hot_auctions$late
INSERT INTO bids VALUES (1, 7, 150, '2026-01-01 00:00:30');
INSERT INTO bids VALUES (1, 8, 250, '2026-01-01 00:00:02');
SELECT window_start, bids FROM hot_auctions;
-- | window_start        | bids |
-- | 2026-01-01 00:00:30 | 1    |
SELECT event_time FROM hot_auctions$late;
-- | event_time          |
-- | 2026-01-01 00:00:02 |

-- test: only large bids are in large_bids
INSERT INTO bids VALUES (1, 7, 150, '2026-01-01 00:00:01'), (2, 7, 2000000, '2026-01-01 00:00:02');
-- changes: large_bids
-- | op | auction | price   |
-- | +I | 2       | 2000000 |
