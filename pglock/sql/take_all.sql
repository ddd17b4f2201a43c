-- take_all is takeOne for arrays of requests. It also creates rows, and skips those that others have
-- locked. It answers with one row for all grants. The planner does not see the parameters, so that
-- it keeps its plan.
WITH r AS MATERIALIZED (SELECT * FROM unnest((SELECT $1::text[]), (SELECT $2::text[]), (SELECT $3::int[]), (SELECT $4::bigint[]),
		(SELECT $5::bigint[]), (SELECT $6::text[])) r(name, nonce, slots, ttl, tokens, entry)),
	k AS MATERIALIZED (SELECT l.ctid AS tid, r.* FROM r JOIN {table} l ON l.name = r.name WHERE {is_free} FOR UPDATE OF l SKIP LOCKED),
	c AS MATERIALIZED (SELECT {clock} AS now, {flush} FROM (SELECT count(*) FROM k) n),
	found AS (UPDATE {table} l SET {grant} FROM k r, c WHERE l.ctid = r.tid AND {is_free}
		RETURNING r.nonce, l.token - r.tokens + 1 AS token, l.waiters, false AS created),
	made AS (INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
		SELECT t.name, t.token + t.tokens - 1, t.slots, {granted}, '[]', t.now
		FROM (SELECT r.*, c.now, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')) AS token FROM r, c
			WHERE NOT EXISTS (SELECT FROM {table} o WHERE o.name = r.name)) t ORDER BY t.name
		ON CONFLICT (name) DO NOTHING
		RETURNING l.holders->0->>'nonce', (l.holders->0->>'token')::bigint, l.waiters, true)
SELECT array_agg(nonce), array_agg(token), array_agg(waiters::text), array_agg(created)
FROM (SELECT * FROM found UNION ALL SELECT * FROM made) g
