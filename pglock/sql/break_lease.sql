-- break_lease is a forced release, which must survive a crash. It also ends what MinHold keeps of a
-- lease that was released.
UPDATE {table} l SET used = {clock}, holders = (
	SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
	WHERE NOT ({is_it}))
FROM (SELECT {flush}) f
WHERE l.name = $1::text AND {taken}
RETURNING {wake}, (SELECT count(pg_notify(e->>'channel', 'b' || (e->>'nonce'))) FROM {table} o
	CROSS JOIN LATERAL jsonb_array_elements(o.holders) e
	WHERE o.name = $1::text AND {is_it})
