-- Adds the row that has the version of the table and the floor of tokens.
INSERT IGNORE INTO {table} (name, {columns}) VALUES ('', 0, 0, 1, '', 0, 0, '', '', NULL, 0)
