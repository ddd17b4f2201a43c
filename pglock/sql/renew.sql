-- renew extends the leases of $1 names and $2 ids to $3 from now, and returns the ids that are held
-- under each name. It shortens no lease, unless the clock was set back since the lease was granted.
-- [skip] is to skip the rows that others have locked, or nothing for one name: so no two renewals
-- deadlock. It waits for that row for half a second, and the driver tries it twice.
UPDATE {table} l SET holders = (
	SELECT coalesce(jsonb_agg(CASE WHEN x.ttl IS NULL THEN e ELSE e || jsonb_build_object('until', x.now + x.ttl, 'ttl', x.ttl) END ORDER BY i), '[]')
	FROM (SELECT e, i, c.now, CASE WHEN NOT e ? 'kept' AND r.ttl IS NOT NULL THEN greatest(r.ttl, least((e->>'until')::bigint - c.now, (e->>'ttl')::bigint)) END AS ttl
		FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		LEFT JOIN unnest($1::text[], $2::text[], $3::bigint[]) r(name, id, ttl) ON r.name = l.name AND r.id = e->>'id'
		WHERE {live}) x)
FROM (SELECT name, {flush}, set_config('lock_timeout', '500ms', true) FROM {table} WHERE name = ANY ($1::text[]) FOR UPDATE [skip]) k
WHERE l.name = k.name
RETURNING l.name, ARRAY(SELECT e->>'id' FROM jsonb_array_elements(l.holders) e WHERE NOT e ? 'kept'), l.waiters <> '[]'
