-- Creates a row, if the floor of tokens is still the same and the server has not set read_only.
-- The answer has the clock. Parameters: name, holders, floor.
INSERT INTO {table} (name, {columns})
SELECT ?, [version], ?, ?, ?, ?, ?, ?, '', NULL, LAST_INSERT_ID({clock})
FROM {table} WHERE name = '' AND token = ? AND {commits}
