-- Writes a row that has not changed since it was read. Parameters: state, name, version.
UPDATE {table} SET version = {next_version}, token = ?, slots = ?, held = ?, kept = ?, since = ?, ends = ?,
	holder = ?, holders = ?, waiters = ?, called = ?, used = ?
WHERE name = ? AND version = ?
