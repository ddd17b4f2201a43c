-- prune deletes up to 1000 locks that were not used for $1 and that nobody holds. Their tokens
-- are not above the floor that an earlier setFloor has noted.
DELETE FROM {table} WHERE name IN (SELECT l.name FROM {table} l, (SELECT {clock} AS now) c
	WHERE l.name <> '' AND l.used < c.now - $1::bigint AND l.token <= (SELECT token FROM {table} WHERE name = '')
		AND CASE WHEN {well_formed} THEN NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders || l.waiters) e WHERE {live}) ELSE false END
	LIMIT 1000 FOR UPDATE OF l SKIP LOCKED)
