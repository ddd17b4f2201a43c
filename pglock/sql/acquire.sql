-- acquire is the full statement: it grants the lease, or adds the waiter. Its parameters are those of
-- decide. It first reads the row without a lock, see precheck. If it adds a waiter, it notifies the
-- holders that asked for that, and does not wait for the disk: a waiter that a crash has forgotten
-- asks again, and the next holder's grant must not wait for this one's flush.
WITH {precheck}, up AS (
	INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
	SELECT $1::text, t.token + t.tokens - 1, $3::int, {granted}, '[]', t.now
	FROM (SELECT c.now, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')) AS token, {flush},
			$4::bigint AS ttl, $5::bigint AS tokens, $6::text AS entry
		FROM (SELECT {clock} AS now) c) t WHERE NOT EXISTS (SELECT FROM seen)
	ON CONFLICT (name) DO UPDATE SET (token, slots, holders, waiters, used) =
		(SELECT d.token, d.slots, d.holders, d.waiters, d.used FROM ({decide}) d)
	RETURNING l.slots, l.holders, l.waiters, l.used, l.xmax = 0 AS made)
SELECT slots, holders, waiters, used, made, CASE WHEN waiters @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
	THEN concat({no_flush}, (SELECT count(pg_notify(e->>'channel', 'w' || (e->>'nonce'))) FROM jsonb_array_elements(holders) e
		WHERE e ? 'tell' AND e->>'channel' <> $6::jsonb->>'channel')) END
FROM up UNION ALL SELECT slots, holders, waiters, used, false, NULL FROM seen
