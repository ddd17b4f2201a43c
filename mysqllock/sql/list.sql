-- Reads the first 100 rows that may have holders or waiters, in the order of names, between two
-- names.
SELECT 0, {clock}, 0, {row} FROM {table} l
WHERE l.name > ? AND l.name < ? AND (l.ends > {clock} OR l.waiters <> '') ORDER BY l.name LIMIT 100
