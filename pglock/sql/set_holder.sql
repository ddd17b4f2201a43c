-- set_holder changes what the lease of $1 name, $2 token or 0, and $3 id says of its holder: $4 host,
-- $5 pid, $6 label and $7 kind.
UPDATE {table} l SET holders = (
	SELECT jsonb_agg(CASE WHEN {is_it} AND NOT e ? 'kept'
		THEN e || jsonb_build_object('host', $4::text, 'pid', $5::bigint, 'label', $6::text, 'kind', $7::text) ELSE e END ORDER BY i)
	FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM (SELECT {no_flush}) f
WHERE l.name = $1::text AND {held}
RETURNING l.name
