-- Subqueries in every place of a query, one query a line. t(a, b, d), u(x, y, z), w(k, z)
SELECT a, b FROM t WHERE b > (SELECT avg(y) FROM u WHERE u.x = t.a)
SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a) AS n FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.y < t.b) AS n FROM t
SELECT a, (SELECT count(*) + 1 FROM u WHERE u.y < t.b AND u.x = t.a) AS n FROM t
SELECT a, (SELECT sum(y) FROM u WHERE u.x = t.a HAVING count(*) > 1) AS n FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a HAVING count(*) < 2) AS n FROM t
SELECT a, b FROM t WHERE a IN (SELECT x FROM u)
SELECT a, b FROM t WHERE a NOT IN (SELECT x FROM u)
SELECT a, b FROM t WHERE a NOT IN (SELECT x FROM u WHERE x IS NOT NULL)
SELECT a, b FROM t WHERE a NOT IN (SELECT x FROM u WHERE y = t.b)
SELECT a, b FROM t WHERE a IN (SELECT x FROM u WHERE y = t.b)
SELECT a, b FROM t WHERE (a, b) IN (SELECT x, y FROM u)
SELECT a, b FROM t WHERE (a, b) NOT IN (SELECT x, y FROM u)
SELECT a, b, (a, b) IN (SELECT x, y FROM u) AS m FROM t
SELECT a, b, a IN (SELECT x FROM u) AS m FROM t
SELECT a, b, a NOT IN (SELECT x FROM u WHERE u.y > t.b) AS m FROM t
SELECT a, b FROM t WHERE a IN (SELECT x FROM u) OR b > 3
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a) OR b IS NULL
SELECT a, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND u.y <> t.b)
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE x = a)
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM t AS t2 WHERE t2.b > t.b AND t2.a = t.a)
SELECT a, b FROM t o WHERE EXISTS (SELECT 1 FROM t WHERE b > o.b AND a = o.a)
SELECT a, b FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.x = t.a)
SELECT a, b FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.x = t.a HAVING count(*) > 1)
SELECT a, b FROM t WHERE EXISTS (SELECT count(*) FROM u)
SELECT a, b FROM t WHERE NOT EXISTS (SELECT count(*) FROM u)
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u)
SELECT a, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE y > 3)
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u JOIN w ON u.y = w.k WHERE u.x = t.a)
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u, w WHERE u.y = w.k AND u.x = t.a AND w.z > t.b)
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND EXISTS (SELECT 1 FROM w WHERE w.k = u.y))
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND EXISTS (SELECT 1 FROM w WHERE w.k = u.y AND w.z = t.b))
SELECT a, b FROM t WHERE b = (SELECT max(y) FROM u WHERE x = (SELECT min(k) FROM w WHERE w.z = t.b))
SELECT a, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.x = t.a) THEN 'y' ELSE 'n' END AS c FROM t
SELECT a, sum(b) AS s FROM t GROUP BY a HAVING sum(b) > (SELECT avg(y) FROM u)
SELECT a, sum(b) AS s FROM t GROUP BY a HAVING sum(b) > (SELECT avg(y) FROM u WHERE u.x = t.a)
SELECT a, sum(b) AS s, (SELECT count(*) FROM u WHERE u.x = t.a) AS n FROM t GROUP BY a
SELECT a, sum(b) AS s, (SELECT max(b) FROM t) AS n FROM t GROUP BY a
SELECT a, sum(CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.y = t.b) THEN 1 ELSE 0 END) AS s FROM t GROUP BY a
SELECT sum((SELECT count(*) FROM u WHERE u.x = t.a)) AS s FROM t
SELECT a, (SELECT y FROM u WHERE u.x = t.a ORDER BY y DESC, z LIMIT 1) AS top FROM t
SELECT a, b, l.y FROM t, LATERAL (SELECT y FROM u WHERE u.x = t.a ORDER BY y, z LIMIT 2) AS l
SELECT a, b, l.n FROM t CROSS JOIN LATERAL (SELECT count(*) AS n FROM u WHERE u.x = t.a) AS l
SELECT a, b, l.y FROM t LEFT JOIN LATERAL (SELECT y FROM u WHERE u.x = t.a AND u.y > t.b) AS l ON true
SELECT * FROM t WHERE b > (SELECT min(y) AS b FROM u)
SELECT *, (SELECT max(y) FROM u) AS m FROM t
SELECT a, (SELECT max(m) FROM (SELECT max(y) AS m, z FROM u WHERE u.x = t.a GROUP BY z) q) AS n FROM t
SELECT a, b FROM t WHERE a IN (SELECT max(y) FROM u WHERE u.x = t.b)
SELECT a, b FROM t WHERE a IN (SELECT count(*) FROM u WHERE u.x = t.b)
SELECT a, b FROM t WHERE a IN (SELECT z FROM u GROUP BY z HAVING count(*) > 1)
SELECT a, b FROM t WHERE a = ANY (SELECT x FROM u)
SELECT a, b FROM t WHERE a <> ALL (SELECT x FROM u)
SELECT a, b FROM t WHERE a >= ALL (SELECT x FROM u)
SELECT a, b FROM t WHERE a < ANY (SELECT y FROM u WHERE u.x = t.a)
SELECT a, b = ALL (SELECT y FROM u WHERE u.x = t.a) AS e, b <> ANY (SELECT y FROM u) AS d FROM t
SELECT a, b FROM t WHERE (SELECT count(*) FROM u WHERE u.x = t.a) = 0
SELECT a, b FROM t WHERE (SELECT count(*) FROM u WHERE u.x = t.a OR u.x IS NULL AND t.a IS NULL) > 1
SELECT a FROM t WHERE b > (SELECT max(y) FROM u) UNION ALL SELECT x FROM u WHERE y > (SELECT min(b) FROM t)
SELECT q.a, q.n FROM (SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a) AS n FROM t) q WHERE q.n > 0
SELECT a, coalesce((SELECT sum(y) FROM u WHERE u.x = t.a), 0) + (SELECT count(*) FROM w) AS n FROM t
SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n DESC
SELECT a, b FROM t ORDER BY b
SELECT t.a, x.n FROM t LEFT JOIN (SELECT count(*) AS n FROM u) x ON true
SELECT count(*) AS n, sum(b) AS s, max(b) AS m FROM t
SELECT count(*) AS n FROM (SELECT count(*) AS c FROM t HAVING count(*) > 2) q
SELECT a, b FROM t WHERE NOT (a IN (SELECT x FROM u) AND b > 1)
SELECT a, b FROM t WHERE a IN (SELECT x FROM u UNION SELECT k FROM w)
SELECT DISTINCT a, EXISTS (SELECT 1 FROM w WHERE w.k = t.a) AS e FROM t
SELECT a, row_number() OVER (PARTITION BY a ORDER BY b, d) AS rn, (SELECT count(*) FROM u WHERE u.x = t.a) AS n FROM t
SELECT a, b FROM t WHERE b >= (SELECT avg(t2.b) FROM t t2 WHERE t2.a = t.a)
SELECT a, d, (SELECT count(*) FROM u WHERE u.y > t.d) AS n FROM t
SELECT a, b FROM t WHERE b IN (SELECT y FROM u WHERE u.x = t.a QUALIFY rank() OVER (ORDER BY y DESC) = 1)
SELECT a, b FROM t WHERE b IN (SELECT y FROM u WHERE u.x = t.a ORDER BY y LIMIT 1 OFFSET 1)
SELECT a, b, b IN (SELECT DISTINCT ON (z) y FROM u WHERE u.x = t.a ORDER BY z, y) AS m FROM t
SELECT a, (SELECT string_agg(CAST(y AS STRING), ',' ORDER BY y) FROM u WHERE u.x = t.a) AS n FROM t
SELECT a, b FROM t WHERE a IN (VALUES (1), (2))
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM generate_series(1, 2) AS g(n) WHERE g.n = t.a)
SELECT a, (SELECT a + 1) AS n FROM t
SELECT a, count(*) AS n FROM t GROUP BY ALL HAVING count(*) > (SELECT count(*) FROM w)
SELECT a, b FROM t WHERE a IN (SELECT x FROM u WHERE u.y = t.b ORDER BY y, x OFFSET 1)
SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a ORDER BY 1 LIMIT 1 OFFSET 1) AS n FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a QUALIFY row_number() OVER (ORDER BY count(*)) > 1) AS n FROM t
SELECT a, (SELECT rank() OVER (ORDER BY count(*)) FROM u WHERE u.x = t.a) AS n FROM t
SELECT a, b FROM t WHERE b IN (SELECT count(*) FROM u WHERE u.x = t.a GROUP BY ALL)
SELECT a, EXISTS (SELECT 1 FROM generate_series(1, t.b) AS g(n) WHERE g.n = t.a) AS e FROM t
-- Row numbers that are named as a column of the rows around them, and several CTEs
SELECT k, z FROM w WHERE k IN (SELECT x FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y, z) AS k FROM u) q WHERE k <= 1)
SELECT k, (SELECT count(*) FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y, z) AS k FROM u) q WHERE k > 1) AS c FROM w
SELECT k, z FROM w WHERE EXISTS (WITH r AS (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y, z) AS k FROM u) SELECT 1 FROM r WHERE k = 2 AND r.x = w.k)
SELECT k, z FROM w WHERE k IN (WITH r AS (SELECT x FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y, z) AS n FROM u) q WHERE n > 1) SELECT x FROM r)
SELECT k, z FROM w WHERE k IN (WITH r AS (SELECT x FROM (SELECT *, row_number() OVER (PARTITION BY x ORDER BY y, z) AS k FROM u) q WHERE k <= 1) SELECT x FROM r)
SELECT a, b FROM t WHERE a IN (WITH p AS (SELECT x, y FROM u), q AS (SELECT x FROM p WHERE y > 0) SELECT x FROM q WHERE x < t.b)
SELECT a, b FROM t WHERE a IN (WITH u AS (SELECT x AS b FROM u), q AS (SELECT b FROM u WHERE b > 1) SELECT b FROM q)
-- All columns of a relation whose conditions use the rows around it
SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM (SELECT * FROM u WHERE u.x = t.a) q WHERE y > b)
SELECT k, z FROM w WHERE EXISTS (SELECT 1 FROM (SELECT q.* EXCEPT (z) FROM (SELECT * FROM u WHERE u.x = w.k) q) q WHERE z > 1)
SELECT q.k, r.y FROM w q, LATERAL (SELECT * FROM (SELECT * FROM u WHERE u.x = q.k) p) r
-- A comparison with any of the rows that a window function was computed for
SELECT a, b FROM t WHERE a >= ANY (SELECT n FROM (SELECT x, sum(y) OVER (PARTITION BY x) AS n FROM u) q WHERE q.x = t.a)
