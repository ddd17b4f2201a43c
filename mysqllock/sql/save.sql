-- Writes a row that has not changed since it was read, unless the server has set read_only. Waiters
-- that were added since stay in the queue. The answer has the clock. Parameters: holders;
-- position of the waiters that were added; process to signal, or '', if there are none; whether to
-- signal the first of them, or else a process; waiters; position; name; last version; whether waiters
-- may have been added; position.
UPDATE {table} SET version = [version], token = ?, slots = ?, id = ?, ttl = ?, ends = ?, holders = ?,
	called = NULLIF(IF(SUBSTRING(waiters, ?) = '', ?,
		IF(?, LEFT(SUBSTRING_INDEX(SUBSTRING(waiters, ?), _binary'-', 1), 32), ?)), ''),
	waiters = CONCAT(?, SUBSTRING(waiters, ?)), used = LAST_INSERT_ID({clock})
WHERE name = ? AND version = ? AND (? OR SUBSTRING(waiters, ?) = '') AND {commits}
