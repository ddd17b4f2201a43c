-- lock_row keeps the row of $1 name unchanged until the transaction ends. The name is in bytes,
-- because the transaction may have any client_encoding.
SELECT FROM {table} WHERE name = convert_from($1, 'UTF8') FOR SHARE
