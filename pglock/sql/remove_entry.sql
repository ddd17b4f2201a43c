-- remove_entry removes what the attempt of $2 nonce has left in the row of $1 name: a waiter, or a
-- lease that was never returned to a caller.
UPDATE {table} l SET used = {clock},
	holders = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'nonce' <> $2::text), '[]')
		FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)),
	waiters = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'nonce' <> $2::text), '[]')
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i))
FROM (SELECT {no_flush}) f
WHERE l.name = $1::text AND (l.holders || l.waiters) @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
RETURNING {wake}
