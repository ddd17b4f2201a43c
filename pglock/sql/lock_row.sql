-- lock_row keeps the row of $1 name unchanged until the transaction ends.
SELECT FROM {table} WHERE name = $1 FOR SHARE
