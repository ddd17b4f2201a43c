-- Notes the greatest token that a later prune may delete. Parameters: a new version; token, twice.
UPDATE {table} SET version = ?, token = ? WHERE name = '' AND token < ? AND {commits}
