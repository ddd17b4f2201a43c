-- heartbeat is read for the names that a process waits for. It also lets the waiters with $2
-- nonces count for {life} more, and caps the ends of all entries. [skip] is to skip the rows that
-- others have locked, or nothing.
WITH k AS (SELECT name FROM {table} WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE [skip]),
	c AS MATERIALIZED (SELECT {clock} AS now, {no_flush} FROM (SELECT count(*) FROM k) n)
UPDATE {table} l SET waiters = (
	SELECT coalesce(jsonb_agg(CASE WHEN e->>'nonce' = ANY ($2::text[]) THEN e || jsonb_build_object('until', c.now + {life}) ELSE e END ORDER BY i), '[]')
	FROM (SELECT {capped_waiter} AS e, i FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) w),
	holders = (SELECT coalesce(jsonb_agg({capped} ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM k, c WHERE l.name = k.name
RETURNING {row}
