-- Writes a row that has not changed since it was read, unless the server has set read_only.
-- Parameters: state, name, version.
UPDATE {table} SET version = {next_version}, token = ?, slots = ?, id = ?, held = ?, ttl = ?,
	min_hold = ?, kept = ?, since = ?, ends = ?, holder = ?, holders = ?, waiters = ?, called = ?, used = ?
WHERE name = ? AND version = ? AND NOT @@global.read_only
