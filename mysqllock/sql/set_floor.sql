-- Notes the greatest token that a later prune may delete. Parameters: token, twice.
UPDATE {table} SET version = {next_version}, token = ? WHERE name = '' AND token < ?
