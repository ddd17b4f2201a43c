-- Locks the row of a name until the transaction ends, or fails at once. Parameter: name.
SELECT 1 FROM {table} WHERE name = ? FOR UPDATE NOWAIT
