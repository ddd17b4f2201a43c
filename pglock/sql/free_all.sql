-- free_all is freeOne for arrays of leases. It skips the rows that others have locked, and answers
-- with one row, as takeAll does.
WITH k AS MATERIALIZED (SELECT l.ctid AS tid, r.* FROM unnest((SELECT $1::text[]), (SELECT $2::text[])) WITH ORDINALITY r(name, id, i)
		JOIN {table} l ON l.name = r.name FOR UPDATE OF l SKIP LOCKED),
	c AS MATERIALIZED (SELECT {clock} AS now, {no_flush} FROM (SELECT count(*) FROM k) n),
	freed AS (UPDATE {table} l SET used = c.now, holders = '[]' FROM k r, c WHERE l.ctid = r.tid AND {is_endable}
		RETURNING r.i, {wake_first} AS woken)
SELECT array_agg(i), count(woken) FROM freed
