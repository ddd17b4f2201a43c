-- Creates a row, if the floor of tokens is still the same and the server has not set read_only.
-- Parameters: name, version, state, floor.
INSERT INTO {table} (name, {columns})
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM {table} WHERE name = '' AND token = ? AND NOT @@global.read_only
