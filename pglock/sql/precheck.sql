-- A part of acquire for requests that change nothing if they are refused, because they do not wait or are
-- queued already. It first reads the row without a lock, as of the beginning of the statement. It
-- has a row if that refuses the request.
seen AS MATERIALIZED (
	SELECT d.* FROM {table} l CROSS JOIN LATERAL ({decide}) d
	WHERE l.name = $1::text AND NOT d.granted AND NOT d.mine AND (NOT $8::bool OR NOT d.fits OR d.place IS NOT NULL)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders) e WHERE (e->>'until')::bigint > d.used + (e->>'ttl')::bigint)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.waiters) e WHERE (e->>'until')::bigint > d.used + $9::bigint)),
