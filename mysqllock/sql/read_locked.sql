-- Reads a row, and keeps it unchanged until the transaction ends. Parameter: name.
SELECT 0, {clock}, NOT ({writable}), {row} FROM {table} l WHERE l.name = ? LOCK IN SHARE MODE
