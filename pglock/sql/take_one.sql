-- take_one grants the lease of the request r if the row exists and is free. Its parameters are the
-- first six of decide. If another transaction has locked the row, it waits for that.
UPDATE {table} l SET {grant}
FROM (SELECT $1::text AS name, $2::text AS nonce, $3::int AS slots, $4::bigint AS ttl, $5::bigint AS tokens, $6::text AS entry) r,
	(SELECT {clock} AS now, {flush} OFFSET 0) c
WHERE l.name = r.name AND {is_free}
RETURNING l.token - r.tokens + 1, l.waiters
