-- Issues a token without a lease. Parameter: name.
UPDATE {table} SET version = {next_version}, token = LAST_INSERT_ID(GREATEST(token + 1, {clock})), used = {clock}
WHERE name = ? AND NOT @@global.read_only
