-- next_token issues a token without a lease.
INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
SELECT $1::text, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')), 0, '[]', '[]', c.now
FROM (SELECT {clock} AS now, {flush} AS flush) c
ON CONFLICT (name) DO UPDATE SET token = greatest({clock}, l.token + 1), used = {clock}
RETURNING l.token
