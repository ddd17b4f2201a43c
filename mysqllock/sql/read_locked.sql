-- Reads a row, and keeps it unchanged until the transaction ends. Without the row, the answer only
-- has the clock, and whether the server has set read_only. Parameter: name.
SELECT 0, {clock}, NOT ({writable}), {row} FROM (SELECT 1) one LEFT JOIN {table} l ON l.name = ? LOCK IN SHARE MODE
