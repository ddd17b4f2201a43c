-- Reads the version of the table. It names all columns, so that it fails if one is missing.
SELECT slots + 0 * LENGTH(CONCAT_WS('', {columns})) FROM {table} WHERE name = ''
