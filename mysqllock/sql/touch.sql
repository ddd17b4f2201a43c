-- Writes the row of a name without a change of the lock, so that the transaction conflicts with each
-- other one that writes the row on another node of a Galera cluster. Parameter: name.
UPDATE {table} SET used = GREATEST(used + 1, {clock}) WHERE name = ?
