-- Finds rows that were unused for a time and that nobody needs, if the floor covers their tokens. A
-- waiter that lives would have taken the lock meanwhile. Parameters: the time, twice.
SELECT l.name FROM {table} l, {table} f
WHERE f.name = '' AND l.name <> '' AND l.used < {clock} - ? AND l.ends < {clock} - ? AND l.token <= f.token
LIMIT 1000
