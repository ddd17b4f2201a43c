-- Says that a process lives. Parameters: its row, and twice how long it counts. Nobody uses the
-- version of such a row, so that it can't overflow.
INSERT INTO {table} (name, {columns})
SELECT ?, 1, 0, 0, '', 0, {clock} + ?, '', '', NULL, {clock} FROM DUAL WHERE {commits}
ON DUPLICATE KEY UPDATE ends = {clock} + ?
