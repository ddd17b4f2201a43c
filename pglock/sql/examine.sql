-- Reads what tells whether the database and the table are usable. It runs in a transaction, which a
-- standby and a pooler in statement mode refuse.
SELECT current_setting('server_encoding'), coalesce((SELECT slots FROM {table} WHERE name = ''), 0)
