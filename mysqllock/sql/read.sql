-- Reads rows, the floor of tokens and the clock. Parameters: any number of names.
SELECT f.token, {clock}, {row} FROM {table} f LEFT JOIN {table} l ON l.name IN ({names}) WHERE f.name = ''
