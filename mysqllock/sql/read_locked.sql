-- Reads a row, and keeps it unchanged until the transaction ends. Parameter: name.
SELECT 0, {clock}, @@global.read_only, {row} FROM {table} l WHERE l.name = ? LOCK IN SHARE MODE
