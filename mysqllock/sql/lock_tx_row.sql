-- Locks the row of a name until the transaction ends, and creates it if it is missing. Parameter:
-- name.
INSERT INTO {table} (name, {columns}) VALUES (?, 1, 0, 0, '', 0, 0, '', '', NULL, {clock})
ON DUPLICATE KEY UPDATE used = {clock}
