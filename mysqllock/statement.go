package mysqllock

import "strings"

// One row stores all that is known of a lock. To take a lock, to free it, and to change anything
// else, the driver reads the row, decides in Go, and writes the row with an UPDATE that finds it
// only if its version is still the one that was read. So a request that the server executes late,
// after another one, changes nothing. And no statement leaves a transaction open, which would keep
// its rows locked until the server notices that the client is stopped or cut off. Only renewals of
// exclusive leases are one UPDATE without a read.
//
// Each change of a row raises its version. Holders and waiters are lines: a nonce, a space, an
// [entry] as JSON, a newline.
//
// An expression in SET reads a column only before it is assigned, or one that is not assigned at
// all. So it does not matter whether the server assigns from left to right or all at once
// (SIMULTANEOUS_ASSIGNMENT).

const (
	// clock is the server's time in microseconds at the beginning of the statement, whatever the
	// time zone of the session.
	clock = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	// nextVersion is the next version of a row. It contains the time, so that a version that was
	// rolled back is not used again: a reader that does not wait for commits may have seen it.
	nextVersion = `GREATEST(version + 1, {clock})`

	// columns are the columns that hold the state of a row.
	columns = `version, token, slots, held, kept, since, ends, holder, holders, waiters, called, used`
)

// read reads rows. Parameters: any number of names.
const read = `SELECT f.token, {clock}, l.name, l.version, l.token, l.slots, l.held, l.kept, l.since, l.ends, l.holder, l.holders,
	l.waiters, l.called FROM {table} f LEFT JOIN {table} l ON l.name IN ({names}) WHERE f.name = ''`

// readCommitted is read, and waits for the transactions that have changed the row.
const readCommitted = read + ` LOCK IN SHARE MODE`

// readLocked reads a row, and keeps it unchanged until the transaction ends. Parameter: name.
const readLocked = `SELECT 0, {clock}, name, version, token, slots, held, kept, since, ends, holder, holders, waiters, called FROM {table}
	WHERE name = ? LOCK IN SHARE MODE`

// list reads the first 100 rows that may have holders or waiters, in the order of names, between
// two names.
const list = `SELECT 0, {clock}, name, version, token, slots, held, kept, since, ends, holder, holders, waiters, called FROM {table}
	WHERE name > ? AND name < ? AND (ends > {clock} OR holders <> '' OR waiters <> '') ORDER BY name LIMIT 100`

// save writes a row that has not changed since it was read. Parameters: state, name, version.
const save = `UPDATE {table} SET version = {bump}, token = ?, slots = ?, held = ?, kept = ?, since = ?, ends = ?, holder = ?,
	holders = ?, waiters = ?, called = ?, used = ? WHERE name = ? AND version = ?`

// insert creates a row, if the floor of tokens is still the same. Parameters: name, version,
// state, floor.
const insert = `INSERT INTO {table} (name, ` + columns + `)
	SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM {table} WHERE name = '' AND token = ?`

// renew extends exclusive leases. Parameters, in the order of names: names with TTLs, names,
// names with tokens.
const renew = `UPDATE {table} SET version = {bump}, ends = {clock} + CASE name {cases} END
	WHERE name IN ({names}) AND held = CASE name {cases} END AND kept = 0 AND ends > {clock}`

// nextToken issues a token without a lease. Parameter: name.
const nextToken = `UPDATE {table} SET version = {bump}, token = LAST_INSERT_ID(GREATEST(token + 1, {clock})), used = {clock} WHERE name = ?`

// heartbeat says that a process lives. Parameters: its row, and twice how long it counts. Nobody
// uses the version of such a row, so that it can't overflow.
const heartbeat = `INSERT INTO {table} (name, ` + columns + `)
	VALUES (?, 1, 0, 0, 0, 0, 0, {clock} + ?, '', '', '', NULL, {clock})
	ON DUPLICATE KEY UPDATE ends = {clock} + ?`

// readLive reads which of the processes with these rows live.
const readLive = `SELECT name, ends FROM {table} WHERE name IN ({names}) AND ends > {clock}`

// capProcesses lets processes with these rows count for no longer than a heartbeat does.
// Parameters: twice how long that is, names.
const capProcesses = `UPDATE {table} SET ends = {clock} + ? WHERE ends > {clock} + ? AND name IN ({names})`

// deleteRows deletes rows by name.
const deleteRows = `DELETE FROM {table} WHERE name IN ({names})`

// stale finds rows that were unused for a time and that nobody needs, if the floor covers their
// tokens. Parameters: the time, twice.
const stale = `SELECT l.name FROM {table} l, {table} f WHERE f.name = '' AND l.name <> '' AND l.used < {clock} - ? AND l.ends < {clock} - ?
	AND l.token <= f.token AND l.holders = '' AND l.waiters = '' LIMIT 1000`

// prune deletes such rows, unless they are used again. Parameters: the time, twice, and names.
// The floor covered their tokens before they were found, so a row with another token has been
// used since.
const prune = `DELETE FROM {table} WHERE used < {clock} - ? AND ends < {clock} - ? AND holders = '' AND waiters = '' AND name IN ({names})`

// setFloor notes the greatest token that a later prune may delete. Parameters: token, twice.
const setFloor = `UPDATE {table} SET version = {bump}, token = ? WHERE name = '' AND token < ?`

// highestToken finds that token. It ignores tokens that are too far ahead of the clock: noting one
// would raise the tokens of all new names. Parameters: the time, and how far a token may be ahead.
const highestToken = `SELECT COALESCE(MAX(token), 0) FROM {table} WHERE name <> '' AND used < {clock} - ? AND token <= {clock} + ?`

// watch returns as soon as a row signals a driver, or after a while. Parameters: driver, number
// of checks (at most 1000), seconds between two checks. The server checks within one statement.
// Its session is READ UNCOMMITTED, so it sees a signal before that is committed, and the signaled
// driver already queues for the row's lock when the row is unlocked.
//
// The subquery refers to the number of the check, so that the server does not evaluate it only
// once.
const watch = `SELECT (SELECT CONCAT(p.version, ' ', p.name) FROM {table} p WHERE p.called = ? AND looks.i >= 0 LIMIT 1) AS hit
	FROM (SELECT a.i + 10 * b.i + 100 * c.i AS i FROM {digits} a, {digits} b, {digits} c) looks
	WHERE looks.i < ? AND SLEEP(?) = 0 HAVING hit IS NOT NULL LIMIT 1`

const digits = `(SELECT 0 AS i UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`

// statements are the statements for one table. Those with {names} are completed when they are
// run.
type statements struct {
	inspect, read, readCommitted, list, save, insert, renew, nextToken, heartbeat, readLive, capProcesses, deleteRows, stale, prune, setFloor, highestToken, watch, readLocked string
}

func newStatements(table string) statements {
	fill := func(sql string) string {
		for _, part := range [][2]string{{"{bump}", nextVersion}, {"{digits}", digits}, {"{clock}", clock}} {
			sql = strings.ReplaceAll(sql, part[0], part[1])
		}
		return render(sql, table)
	}
	return statements{
		inspect: fill(`SELECT slots + 0 * LENGTH(CONCAT_WS('', ` + columns + `)) FROM {table} WHERE name = ''`),
		read:    fill(read), readCommitted: fill(readCommitted), list: fill(list), save: fill(save), insert: fill(insert), renew: fill(renew),
		nextToken: fill(nextToken), heartbeat: fill(heartbeat), readLive: fill(readLive), capProcesses: fill(capProcesses), deleteRows: fill(deleteRows), stale: fill(stale), prune: fill(prune),
		setFloor: fill(setFloor), highestToken: fill(highestToken), watch: fill(watch), readLocked: fill(readLocked),
	}
}

// batchSizes are the numbers of names for which statements are prepared.
var batchSizes = [...]int{1, 8, 64, 256}

// batchSize returns the number of names in a prepared statement for n names. If n is too large,
// it is the greatest such number.
func batchSize(n int) int {
	for _, size := range batchSizes {
		if n <= size {
			return size
		}
	}
	return batchSizes[len(batchSizes)-1]
}

// expandNames completes a statement for n names.
func expandNames(sql string, n int) string {
	sql = strings.ReplaceAll(sql, "{names}", strings.TrimPrefix(strings.Repeat(", ?", n), ", "))
	return strings.ReplaceAll(sql, "{cases}", strings.TrimSpace(strings.Repeat("WHEN ? THEN ? ", n)))
}

// nameArgs returns the arguments for a statement of n names. It repeats the last name.
func nameArgs(all []string, n int) []any {
	args := make([]any, n)
	for i := range args {
		args[i] = []byte(all[min(i, len(all)-1)])
	}
	return args
}
