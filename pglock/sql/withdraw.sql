-- withdraw removes the waiters with $2 id from the row of $1 name.
UPDATE {table} l SET used = {clock},
	waiters = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'id' <> $2::text), '[]')
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i))
FROM (SELECT {no_flush}) f
WHERE l.name = $1::text AND l.waiters @> jsonb_build_array(jsonb_build_object('id', $2::text))
RETURNING {wake}
