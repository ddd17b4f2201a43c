package mysqllock

import (
	"slices"
	"strings"
)

// One row stores all that is known of a lock. The fast paths, which take a free lock and release
// one, are one UPDATE each. All other changes read the row, decide in Go, and write it with an
// UPDATE that finds the row only if its version is still the one that was read. So no statement
// leaves a transaction open, which would keep its rows locked until the server notices that the
// client is stopped or cut off.
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
	nextVersion = `GREATEST({row}version + 1, {clock})`

	// columns are the columns that hold the state of a row.
	columns = `version, token, slots, held, kept, since, ends, holder, holders, waiters, called, used`

	// free is true if the lock can be granted to the first waiter, which must have this nonce, or
	// to a newcomer if nobody waits. Parameter: nonce.
	free = `ends <= {clock} AND holders = '' AND (waiters = '' OR SUBSTRING_INDEX(waiters, ' ', 1) = {nonce})`

	// cappedSince is the beginning of a hold, but at most now: the clock may have been set back
	// since.
	cappedSince = `LEAST({row}since, {clock})`

	// firstWaiter is the driver of the first waiter.
	firstWaiter = `NULLIF(SUBSTRING_INDEX({row}waiters, '-', 1), '')`
)

// acquireFast takes a lock that is free. Parameters: those of taken, name, nonce. It returns,
// through LAST_INSERT_ID, twice the token, plus one if others wait.
const acquireFast = `UPDATE {table} SET {taken} WHERE name = ? AND {free}`

// releaseFast ends an exclusive lease, or keeps it until it has lasted for MinHold. Parameters:
// those of ended, name, token. It signals the first waiter in either case, because the end that it
// knows has changed.
const releaseFast = `UPDATE {table} SET {ended} WHERE name = ? AND {endable}`

// These are parts of acquireFast and acquireBatch, and of releaseFast and releaseBatch: what they
// write, and which lease can be ended. Parameters of taken: tokens, TTL, holder. Parameters of
// ended: MinHold four times. Parameter of endable: token.
const (
	taken = `
	version = {bump} + 0 * LAST_INSERT_ID(2 * GREATEST({row}token + 1, {clock}) + (LOCATE(0x0a, {row}waiters) < LENGTH({row}waiters))),
	held = GREATEST({row}token + 1, {clock}),
	token = GREATEST({row}token + 1, {clock}) + {tokens} - 1,
	slots = 0, kept = 0, since = {clock}, ends = {clock} + {ttl}, holder = {holder}, called = NULL, used = {clock},
	waiters = SUBSTRING({row}waiters, LOCATE(0x0a, {row}waiters) + 1)`

	ended = `
	version = {bump}, called = {first}, used = {clock},
	held = IF({began} + {least} > {clock}, {row}held, 0), kept = {began} + {least} > {clock},
	ends = IF({began} + {least} > {clock}, {began} + {least}, 0), since = {began}`

	endable = `held = {held} AND kept = 0 AND ends > {clock}`
)

// acquireBatch is acquireFast for many locks. Parameter: an array of [taking] as JSON. It returns
// the nonce and the token of each grant, and whether others wait. It skips the rows that other
// transactions have locked. The rows exist and stay locked, so it inserts none: INSERT is only the
// statement that returns what it has changed. It carries the parameters in columns of the row
// that is not inserted.
const acquireBatch = `
INSERT INTO {table} (name, ` + columns + `)
SELECT l.name, 0, r.tokens, 0, 0, 0, 0, r.ttl, FROM_BASE64(r.line), '', '', NULL, 0
FROM JSON_TABLE(?, '$[*]' COLUMNS (lock_name VARCHAR(1024) PATH '$.name', nonce VARCHAR(64) PATH '$.nonce',
	tokens BIGINT PATH '$.tokens', ttl BIGINT PATH '$.ttl', line LONGTEXT PATH '$.line')) r
STRAIGHT_JOIN {table} l ON l.name = FROM_BASE64(r.lock_name)
WHERE {free}
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE {taken}
RETURNING SUBSTRING_INDEX(holder, ' ', 1), held, waiters <> ''`

// releaseBatch is releaseFast for many locks. Parameter: an array of [freeing] as JSON. It returns
// the name of each lock that it has released. See acquireBatch.
const releaseBatch = `
INSERT INTO {table} (name, ` + columns + `)
SELECT l.name, 0, 0, 0, 0, 0, r.least, 0, '', '', '', NULL, 0
FROM JSON_TABLE(?, '$[*]' COLUMNS (lock_name VARCHAR(1024) PATH '$.name', token BIGINT PATH '$.token', least BIGINT PATH '$.least')) r
STRAIGHT_JOIN {table} l ON l.name = FROM_BASE64(r.lock_name)
WHERE {endable}
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE {ended}
RETURNING name`

// read reads rows. Parameters: any number of names.
const read = `SELECT f.token, {clock}, l.name, l.version, l.token, l.slots, l.held, l.kept, l.since, l.ends, l.holder, l.holders,
	l.waiters, l.called FROM {table} f LEFT JOIN {table} l ON l.name IN ({names}) WHERE f.name = ''`

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
	inspect, acquireFast, acquireBatch, releaseFast, releaseBatch, read, list, save, insert, renew, nextToken, heartbeat, readLive, capProcesses, deleteRows, stale, prune, setFloor, highestToken, watch, readLocked string
}

func newStatements(table string) statements {
	fill := func(sql string, parts ...string) string {
		parts = slices.Concat(
			[]string{"{taken}", taken, "{ended}", ended, "{endable}", endable, "{free}", free, "{first}", firstWaiter, "{began}", cappedSince,
				"{bump}", nextVersion, "{digits}", digits, "{clock}", clock},
			parts, []string{"{row}", "", "{nonce}", "?", "{tokens}", "?", "{ttl}", "?", "{holder}", "?", "{held}", "?", "{least}", "?"})
		for i := 0; i < len(parts); i += 2 {
			sql = strings.ReplaceAll(sql, parts[i], parts[i+1])
		}
		return render(sql, table)
	}
	const row = "{table}." // in a batch, a column without it could be that of the SELECT as well
	return statements{
		inspect:     fill(`SELECT slots + 0 * LENGTH(CONCAT_WS('', ` + columns + `)) FROM {table} WHERE name = ''`),
		acquireFast: fill(acquireFast), releaseFast: fill(releaseFast), read: fill(read), list: fill(list), save: fill(save), insert: fill(insert), renew: fill(renew),
		nextToken: fill(nextToken), heartbeat: fill(heartbeat), readLive: fill(readLive), capProcesses: fill(capProcesses), deleteRows: fill(deleteRows), stale: fill(stale), prune: fill(prune),
		acquireBatch: fill(acquireBatch, "{row}", row, "{nonce}", "r.nonce", "{tokens}", "VALUES(token)", "{ttl}", "VALUES(ends)",
			"{holder}", "VALUES(holder)"),
		releaseBatch: fill(releaseBatch, "{row}", row, "{held}", "r.token", "{least}", "VALUES(since)"),
		setFloor:     fill(setFloor), highestToken: fill(highestToken), watch: fill(watch), readLocked: fill(readLocked),
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
