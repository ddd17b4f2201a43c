-- set_floor notes, in the row with the empty name, the highest token of the locks that a later
-- prune may delete. A row that is created again starts above it. setFloor takes locks that were
-- not used for $1, and ignores tokens that are ahead of the clock by more than $2: noting one
-- would raise the tokens of all new names.
UPDATE {table} f SET token = greatest(f.token, m.token), used = {clock}
FROM (SELECT max(token) AS token FROM {table} WHERE name <> '' AND used < {clock} - $1::bigint
	AND token <= {clock} + $2::bigint) m
WHERE f.name = '' AND f.token < m.token
