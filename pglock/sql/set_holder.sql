-- set_holder changes what the lease of $1 name and $2 id says of its holder: $3 host, $4 pid, $5
-- label and $6 kind. A crash must not bring the kind back by which another process may adopt the
-- lease.
UPDATE {table} l SET holders = (
	SELECT jsonb_agg(CASE WHEN {is_it} AND NOT e ? 'kept'
		THEN e || jsonb_build_object('host', $3::text, 'pid', $4::bigint, 'label', $5::text, 'kind', $6::text) ELSE e END ORDER BY i)
	FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM (SELECT {flush}) f
WHERE l.name = $1::text AND {held}
RETURNING l.name
