-- Returns as soon as a row signals a driver, or after a while. Parameters: driver, number of
-- checks (at most 1000), seconds between two checks. The server checks within one statement. Its
-- session is READ UNCOMMITTED, so it sees a signal before that is committed, and the signaled
-- driver already waits for the row when the row is unlocked. The subquery refers to the number of
-- the check, so that the server does not evaluate it only once. If the server has set read_only,
-- the result is "-".
SELECT IF(@@global.read_only, '-', (SELECT CONCAT(p.version, ' ', p.name) FROM {table} p WHERE p.called = ? AND looks.i >= 0 LIMIT 1)) AS hit
FROM (SELECT a.i + 10 * b.i + 100 * c.i AS i FROM {digits} a, {digits} b, {digits} c) looks
WHERE looks.i < ? AND SLEEP(?) = 0 HAVING hit IS NOT NULL LIMIT 1
