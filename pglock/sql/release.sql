-- release ends the lease of $1 name and $2 id, or keeps it until it has lasted its MinHold. If the
-- clock was set back, it keeps the lease for MinHold from now. If a crash undid that, MinHold would
-- end with the lease, so a commit that keeps one waits for the disk.
UPDATE {table} l SET used = {clock}, holders = (
	SELECT coalesce(jsonb_agg(CASE WHEN x.ended THEN e || jsonb_build_object('kept', true, 'until', x.least, 'ttl', e->'min_hold')
		ELSE e END ORDER BY i) FILTER (WHERE NOT x.ended OR x.least > x.now), '[]')
	FROM (SELECT e, i, c.now, least((e->>'since')::bigint, c.now) + coalesce((e->>'min_hold')::bigint, 0) AS least,
			{is_it} AND NOT e ? 'kept' AS ended
		FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		WHERE {live}) x)
FROM (SELECT CASE WHEN EXISTS (SELECT FROM {table} o CROSS JOIN LATERAL jsonb_array_elements(o.holders) e
	WHERE o.name = $1::text AND {is_it} AND e ? 'min_hold') THEN {flush} ELSE {no_flush} END) f
WHERE l.name = $1::text AND {held}
RETURNING {wake}
