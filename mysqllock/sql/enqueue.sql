-- Adds a waiter to a row, whatever has changed since it was read, unless the server has set
-- read_only. So a newcomer gets its place, however often the others change the row. The version
-- stays the same, so no other request has to decide again; the answer has it. Parameters: process to
-- signal or '', waiter, name, whether it is a semaphore, beginning of the waiter.
UPDATE {table} SET called = COALESCE(called, NULLIF(?, '')), waiters = CONCAT(waiters, ?), used = {clock},
	version = LAST_INSERT_ID(version)
WHERE name = ? AND (slots > 0) = ? AND NOT LOCATE(?, waiters) AND NOT @@global.read_only
