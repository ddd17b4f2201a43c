-- Reads rows, the floor of tokens, the clock, and whether a write would not be committed.
-- Parameters: any number of names.
SELECT f.token, {clock}, NOT ({commits}), {row} FROM {table} f LEFT JOIN {table} l ON l.name IN ([names]) WHERE f.name = ''
