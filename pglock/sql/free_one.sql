-- free_one ends the lease r if it is the only one in the row and need not be kept, and the first
-- waiter, if there is one, is exclusive. Otherwise it returns nothing. Parameters: name, id.
UPDATE {table} l SET used = c.now, holders = '[]'
FROM (SELECT $1::text AS name, $2::text AS id) r, (SELECT {clock} AS now, {no_flush} OFFSET 0) c
WHERE l.name = r.name AND {is_endable}
RETURNING {wake_first}
