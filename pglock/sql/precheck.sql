-- A part of acquire: the row as of the beginning of the statement, without a lock. It has a row if
-- that refuses the request and the refusal changes nothing, because the request does not wait, is
-- queued already, or is of another kind.
seen AS MATERIALIZED (
	SELECT d.* FROM {table} l CROSS JOIN LATERAL ({decide}) d
	WHERE l.name = $1::text AND NOT d.granted AND NOT d.mine AND (NOT $8::bool OR NOT d.fits OR d.place IS NOT NULL)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders) e WHERE (e->>'until')::bigint > d.used + (e->>'ttl')::bigint)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.waiters) e WHERE (e->>'until')::bigint > d.used + {life}))
