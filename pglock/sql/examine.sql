-- Reads what tells whether the database and the table are usable.
SELECT current_setting('server_encoding'), pg_is_in_recovery(), coalesce((SELECT slots FROM {table} WHERE name = ''), 0)
