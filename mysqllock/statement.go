package mysqllock

import "strings"

// All that is known of a lock stands in one row. What decides how fast a lock is, taking one that is free and giving it up,
// is one UPDATE each. Whatever needs more thought is read, thought about in Go, and written by an UPDATE that finds the row
// only if its version is still the one that was read. So no statement leaves a transaction open, which would keep its rows
// locked for as long as the server believes in a client that is stopped or cut off.
//
// Each change of a row raises its version. Holders and waiters are lines: a nonce, a space, an [entry] as JSON, a newline.
//
// Expressions in SET read a column before it is assigned, or one that is not, so that it is all the same whether the server
// assigns from left to right or at once (SIMULTANEOUS_ASSIGNMENT).

const (
	// clock is the server's time in microseconds, when the statement began, whatever the session's time zone.
	clock = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	// bump is the next version. It has the time in it, so that one that is rolled back is not given again: who reads
	// without waiting for a commit may have seen it.
	bump = `GREATEST(version + 1, {clock})`

	// columns are those of a row that hold its state.
	columns = `version, token, slots, held, kept, since, ends, holder, holders, waiters, called, used`

	// free says that the lock can be given to who waits for it first, or to whoever comes if nobody waits: nonce.
	free = `ends <= {clock} AND holders = '' AND (waiters = '' OR SUBSTRING_INDEX(waiters, ' ', 1) = ?)`

	// began is when a hold began, and at most now: the clock may have been set back since.
	began = `LEAST(since, {clock})`

	// first is the driver whose waiter is the first.
	first = `NULLIF(SUBSTRING_INDEX(waiters, '-', 1), '')`
)

// grab takes a lock that is free: tokens, TTL, holder, name, nonce. It returns, by the way that there is for numbers, twice
// the token, and one more if others wait.
const grab = `
UPDATE {table} SET
	version = {bump} + 0 * LAST_INSERT_ID(2 * GREATEST(token + 1, {clock}) + (LOCATE(0x0a, waiters) < LENGTH(waiters))),
	held = GREATEST(token + 1, {clock}),
	token = GREATEST(token + 1, {clock}) + ? - 1,
	slots = 0, kept = 0, since = {clock}, ends = {clock} + ?, holder = ?, called = NULL, used = {clock},
	waiters = SUBSTRING(waiters, LOCATE(0x0a, waiters) + 1)
WHERE name = ? AND {free}`

// let ends the only hold, or keeps it until it has lasted long enough: four times MinHold, name, token. The first waiter
// is called in any case, since the end that it knows of is another now.
const let = `
UPDATE {table} SET
	version = {bump}, called = {first}, used = {clock},
	held = IF({began} + ? > {clock}, held, 0), kept = {began} + ? > {clock}, ends = IF({began} + ? > {clock}, {began} + ?, 0),
	since = {began}
WHERE name = ? AND held = ? AND kept = 0 AND ends > {clock}`

// load reads rows: names, as many as are asked for.
const load = `SELECT f.token, {clock}, l.name, l.version, l.token, l.slots, l.held, l.kept, l.since, l.ends, l.holder, l.holders,
	l.waiters, l.called FROM {table} f LEFT JOIN {table} l ON l.name IN ({names}) WHERE f.name = ''`

// current reads a row, and keeps it as it is until the transaction ends: name.
const current = `SELECT 0, {clock}, name, version, token, slots, held, kept, since, ends, holder, holders, waiters, called FROM {table}
	WHERE name = ? LOCK IN SHARE MODE`

// list reads the first rows in the order of names after one name and up to another in which somebody may be.
const list = `SELECT 0, {clock}, name, version, token, slots, held, kept, since, ends, holder, holders, waiters, called FROM {table}
	WHERE name > ? AND name < ? AND (ends > {clock} OR holders <> '' OR waiters <> '') ORDER BY name LIMIT 100`

// save writes a row that has not changed since it was read: state, name, version.
const save = `UPDATE {table} SET version = {bump}, token = ?, slots = ?, held = ?, kept = ?, since = ?, ends = ?, holder = ?,
	holders = ?, waiters = ?, called = ?, used = ? WHERE name = ? AND version = ?`

// add makes a row: name, version and state, and the token above which its own must be, if that is still the one.
const add = `INSERT INTO {table} (name, ` + columns + `)
	SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM {table} WHERE name = '' AND token = ?`

// renew lets exclusive holds last: names with TTLs, names, names with tokens, in the order of names.
const renew = `UPDATE {table} SET version = {bump}, ends = {clock} + CASE name {cases} END
	WHERE name IN ({names}) AND held = CASE name {cases} END AND kept = 0 AND ends > {clock}`

// next gives a token to who has no lease: name.
const next = `UPDATE {table} SET version = {bump}, token = LAST_INSERT_ID(GREATEST(token + 1, {clock})), used = {clock} WHERE name = ?`

// beat says that a process lives: its row, and for how long it counts, twice each.
const beat = `INSERT INTO {table} (name, ` + columns + `)
	VALUES (?, 1, 0, 0, 0, 0, 0, {clock} + ?, '', '', '', NULL, {clock})
	ON DUPLICATE KEY UPDATE version = {bump}, ends = {clock} + ?`

// living reads the processes that live of those whose rows are named.
const living = `SELECT name, ends FROM {table} WHERE name IN ({names}) AND ends > {clock}`

// forget deletes rows by name.
const forget = `DELETE FROM {table} WHERE name IN ({names})`

// stale finds rows that were not used for a time and that nobody needs, if their tokens are noted: time, time.
const stale = `SELECT l.name FROM {table} l, {table} f WHERE f.name = '' AND l.name <> '' AND l.used < {clock} - ? AND l.ends < {clock} - ?
	AND l.token <= f.token AND l.holders = '' AND l.waiters = '' LIMIT 1000`

// prune deletes them, unless they are used by now: time, time, names. Their tokens were noted before they were found, so
// one that has another token now has been used.
const prune = `DELETE FROM {table} WHERE used < {clock} - ? AND ends < {clock} - ? AND holders = '' AND waiters = '' AND name IN ({names})`

// raise notes the greatest token that a later prune may forget: token, token.
const raise = `UPDATE {table} SET version = {bump}, token = ? WHERE name = '' AND token < ?`

// highest finds it: time.
const highest = `SELECT COALESCE(MAX(token), 0) FROM {table} WHERE name <> '' AND used < {clock} - ?`

// watch returns as soon as a row calls a driver, or after a while: driver, number of looks (at most 1000), seconds between
// two. The server looks, in one statement; its session is READ UNCOMMITTED, so it sees what is written before
// that is committed, and who is called stands in line for the row before it is free.
//
// The subquery depends on the looks, so that it is not done once and for all.
const watch = `SELECT (SELECT CONCAT(p.version, ' ', p.name) FROM {table} p WHERE p.called = ? AND looks.i >= 0 LIMIT 1) AS hit
	FROM (SELECT a.i + 10 * b.i + 100 * c.i AS i FROM {digits} a, {digits} b, {digits} c) looks
	WHERE looks.i < ? AND SLEEP(?) = 0 HAVING hit IS NOT NULL LIMIT 1`

const digits = `(SELECT 0 AS i UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
	UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`

// statements are those of one table. Those with {names} are completed when they are run.
type statements struct {
	inspect, grab, let, load, list, save, add, renew, next, beat, living, forget, stale, prune, raise, highest, watch, current string
}

func newStatements(table string) statements {
	fill := func(sql string) string {
		for _, part := range [][2]string{{"{free}", free}, {"{first}", first}, {"{began}", began}, {"{bump}", bump}, {"{digits}", digits}, {"{clock}", clock}} {
			sql = strings.ReplaceAll(sql, part[0], part[1])
		}
		return render(sql, table)
	}
	return statements{
		inspect: fill(`SELECT slots + 0 * LENGTH(CONCAT_WS('', ` + columns + `)) FROM {table} WHERE name = ''`),
		grab:    fill(grab), let: fill(let), load: fill(load), list: fill(list), save: fill(save), add: fill(add), renew: fill(renew),
		next: fill(next), beat: fill(beat), living: fill(living), forget: fill(forget), stale: fill(stale), prune: fill(prune),
		raise: fill(raise), highest: fill(highest), watch: fill(watch), current: fill(current),
	}
}

// sizes are the numbers of names that statements are prepared for.
var sizes = [...]int{1, 8, 64, 256}

// size returns for how many names a statement is prepared that has to do with n of them, or with the first of them.
func size(n int) int {
	for _, size := range sizes {
		if n <= size {
			return size
		}
	}
	return sizes[len(sizes)-1]
}

// forNames completes a statement for n names.
func forNames(sql string, n int) string {
	sql = strings.ReplaceAll(sql, "{names}", strings.TrimPrefix(strings.Repeat(", ?", n), ", "))
	return strings.ReplaceAll(sql, "{cases}", strings.TrimSpace(strings.Repeat("WHEN ? THEN ? ", n)))
}

// names returns arguments for a statement of n names: the last one is repeated.
func names(all []string, n int) []any {
	args := make([]any, n)
	for i := range args {
		args[i] = []byte(all[min(i, len(all)-1)])
	}
	return args
}
