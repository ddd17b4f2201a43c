-- Creates a row, if the floor of tokens is still the same. Parameters: name, version, state,
-- floor.
INSERT INTO {table} (name, {columns})
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM {table} WHERE name = '' AND token = ?
