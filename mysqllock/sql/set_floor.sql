-- Notes the greatest token that a later prune may delete. Parameter: token, twice.
UPDATE {table} SET version = [version], token = ? WHERE name = '' AND token < ? AND {commits}
