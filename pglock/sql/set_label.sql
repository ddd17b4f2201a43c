-- set_label changes the label of the lease of $1 name, $2 token or 0, and $3 id to $4.
UPDATE {table} l SET holders = (
	SELECT jsonb_agg(CASE WHEN {is_it} AND NOT e ? 'kept' THEN e || jsonb_build_object('label', $4::text) ELSE e END ORDER BY i)
	FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM (SELECT {no_flush}) f
WHERE l.name = $1::text AND {held}
RETURNING l.name
