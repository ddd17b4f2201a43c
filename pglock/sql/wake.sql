-- wake notifies those waiters of the new row l that can be granted now.
CASE WHEN l.waiters <> '[]' THEN (
	SELECT count(pg_notify(w.e->>'channel', 'g' || (w.e->>'nonce')))
	FROM (SELECT {clock} AS now) c
	CROSS JOIN LATERAL (SELECT count(*) AS n, min((e->>'slots')::int) AS slots, coalesce(bool_or(NOT (e->>'shared')::bool), false) AS alone
		FROM jsonb_array_elements(l.holders) e WHERE {live}) h
	CROSS JOIN LATERAL (SELECT e, count(*) OVER (ORDER BY i) - 1 AS ahead, min((e->>'slots')::int) OVER (ORDER BY i) AS slots,
		coalesce(bool_or(NOT (e->>'shared')::bool) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS alone
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) w
	WHERE CASE WHEN l.slots > 0 THEN h.n + w.ahead < least(h.slots, w.slots)
		WHEN (w.e->>'shared')::bool THEN NOT (h.alone OR w.alone)
		ELSE h.n + w.ahead = 0 END) END
