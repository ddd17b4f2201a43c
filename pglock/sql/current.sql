-- current counts the holders of $1 name, in bytes as in lock_row, that have $2 token. All tokens of
-- one grant belong to one holder, also those that are handed over within its process.
SELECT count(*) FROM (SELECT {clock} AS now) c CROSS JOIN {table} l CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
WHERE l.name = convert_from($1, 'UTF8') AND {live} AND NOT e ? 'kept'
	AND $2::bigint BETWEEN (e->>'token')::bigint AND (e->>'token')::bigint + (e->>'tokens')::bigint - 1
