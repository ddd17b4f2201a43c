-- Reads rows, the floor of tokens, the clock, and whether the server has set read_only.
-- Parameters: any number of names.
SELECT f.token, {clock}, @@global.read_only, {row} FROM {table} f LEFT JOIN {table} l ON l.name IN ([names]) WHERE f.name = ''
