-- decide computes the new state of the row l for a request: $1 name, $2 nonce, $3 slots, $4 TTL,
-- $5 tokens, $6 the entry for holders or waiters, $7 shared, $8 whether to wait. A waiter counts for
-- {life}. Times are in microseconds. If an earlier request of the attempt was executed, and its answer
-- was lost, its lease is in the row, and is mine: it then lasts for one TTL from now.
SELECT v.granted, v.mine, v.fits, w.place,
	CASE WHEN v.granted THEN v.token + $5::bigint - 1 ELSE l.token END AS token,
	CASE WHEN v.fits THEN $3::int ELSE l.slots END AS slots,
	CASE WHEN v.granted THEN h.live || jsonb_build_array($6::jsonb || jsonb_build_object(
		'token', v.token, 'tokens', $5::bigint, 'since', c.now, 'until', c.now + $4::bigint, 'ttl', $4::bigint)) ELSE h.live END AS holders,
	CASE WHEN v.mine OR v.granted THEN w.others
		WHEN $8::bool AND v.fits AND w.place IS NULL THEN w.live || jsonb_build_array($6::jsonb || jsonb_build_object(
			'since', c.now, 'until', c.now + {life}))
		ELSE w.live END AS waiters,
	c.now AS used
FROM (SELECT {clock} AS now) c
CROSS JOIN LATERAL (
	SELECT count(*) AS n, min((e->>'slots')::int) AS slots, coalesce(bool_or(NOT (e->>'shared')::bool), false) AS alone, coalesce(bool_or(x.mine), false) AS mine,
		coalesce(jsonb_agg(CASE WHEN x.mine THEN e || jsonb_build_object('until', c.now + $4::bigint) ELSE {capped} END ORDER BY i), '[]') AS live
	FROM (SELECT e, i, e->>'nonce' = $2::text AND NOT e ? 'kept' AS mine
		FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE {live}) x) h
CROSS JOIN LATERAL (
	SELECT max(place) AS place, count(*) FILTER (WHERE i IS DISTINCT FROM place) AS n,
		count(*) FILTER (WHERE place IS NULL OR i < place) AS ahead,
		min((e->>'slots')::int) FILTER (WHERE place IS NULL OR i < place) AS slots,
		coalesce(bool_or(NOT (e->>'shared')::bool) FILTER (WHERE place IS NULL OR i < place), false) AS alone,
		coalesce(jsonb_agg(e ORDER BY i), '[]') AS live,
		coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE i IS DISTINCT FROM place), '[]') AS others
	FROM (SELECT {capped_waiter} AS e, i, min(i) FILTER (WHERE e->>'nonce' = $2::text) OVER () AS place
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) x) w
CROSS JOIN LATERAL (
	SELECT k.fits, h.mine, greatest(l.token + 1, c.now) AS token, k.fits AND NOT h.mine AND CASE
		WHEN $3::int > 0 THEN h.n + w.ahead < least($3::int, h.slots, w.slots)
		WHEN $7::bool THEN NOT (h.alone OR w.alone)
		ELSE h.n + w.ahead = 0 END AS granted
	FROM (SELECT (l.slots > 0) = ($3::int > 0) OR h.n + w.n = 0 AS fits) k) v
