package pglock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// A plain lease of a session is an advisory lock without a row; see [rows.Plain]. These statements
// look at the row, on the connection of the session.

const (
	// takePlain takes the advisory lock by {call}, unless the row of {name} bars that. It reads
	// the clock after it has the lock. A lock without a row starts above the floor.
	takePlain = `
SELECT CASE WHEN l.barred THEN NULL ELSE {call} END, clock_timestamp(), coalesce(l.token, (SELECT token FROM {table} WHERE name = ''))
FROM (SELECT) one LEFT JOIN LATERAL (SELECT token, {barred} AS barred FROM {table} WHERE name = {name}) l ON true`

	// freePlain releases the advisory lock by {call}, and notifies the first waiter that lives and
	// comes after the one with the nonce {after}. {key} is the key of this session: the server
	// would grant it that lock again.
	freePlain = `
SELECT {call}, (SELECT CASE WHEN l.waiters <> '[]' THEN (
	SELECT pg_notify(w.e->>'channel', 'g' || (w.e->>'nonce'))::text FROM (
		SELECT e, i, max(i) FILTER (WHERE e->>'nonce' = {after}) OVER () AS place
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i)) w
	WHERE w.i > coalesce(w.place, 0) AND (w.e->>'until')::bigint > {clock} AND CASE WHEN (w.e->>'session')::int <> {key}
		THEN NOT pg_try_advisory_xact_lock_shared(1936615778, (w.e->>'session')::int) ELSE true END
	ORDER BY w.i LIMIT 1) END
FROM {table} l WHERE l.name = {name})`

	// The conditions of takePlain: for an exclusive attempt that has just come, for one that waits
	// with the nonce {nonce}, and the same for one that shares the lock.
	barredNew          = `holders <> '[]' OR waiters <> '[]'`
	barredQueued       = `holders <> '[]' OR ` + barredQueuedShared
	barredNewShared    = `waiters <> '[]'`
	barredQueuedShared = `NOT waiters @> jsonb_build_array(jsonb_build_object('nonce', {nonce}::text))`
)

// enqueue is acquire without a grant. It writes nothing if that changes nothing.
const enqueue = `
WITH {seen} up AS (
	INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
	SELECT $1::text, c.token, $3::int, '[]', CASE WHEN $9::bool THEN jsonb_build_array($6::jsonb || jsonb_build_object(
		'since', c.now, 'until', c.now + $10::bigint)) ELSE '[]'::jsonb END, c.now
	FROM (SELECT {clock} AS now, (SELECT token FROM {table} WHERE name = '') AS token, {noflush}) c
	WHERE NOT EXISTS (SELECT FROM seen)
	ON CONFLICT (name) DO UPDATE SET (token, slots, holders, waiters, used) =
		(SELECT d.token, d.slots, d.holders, d.waiters, d.used FROM ({decide}) d)
	RETURNING l.slots, l.holders, l.waiters, l.used, l.xmax = 0 AS made)
SELECT slots, holders, waiters, used, made, CASE WHEN waiters @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
	THEN (SELECT count(pg_notify(e->>'channel', 'w' || (e->>'nonce'))) FROM jsonb_array_elements(holders) e
		WHERE e ? 'tell' AND e->>'channel' <> $6::jsonb->>'channel') END
FROM up UNION ALL SELECT slots, holders, waiters, used, false, 0 FROM seen`

// nothingEnded is true if no entry of the row l has ended: d has the others.
const nothingEnded = `
	AND jsonb_array_length(d.holders) = jsonb_array_length(l.holders) AND jsonb_array_length(d.waiters) = jsonb_array_length(l.waiters)`

// writeRecord makes the plain lease of $2 nonce and $3 token a holder in the row of $1 name, with
// the entry $4. If an earlier statement may have done so ($5) and the token was used since,
// somebody may have removed the entry by force: it then stays removed. $6 is the id of this
// driver.
const writeRecord = `
INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
SELECT $1::text, $3::bigint, 0, jsonb_build_array($4::jsonb), '[]', c.now FROM (SELECT {clock} AS now, {noflush}) c
ON CONFLICT (name) DO UPDATE SET token = greatest(l.token, $3::bigint), slots = 0, used = {clock},
	holders = CASE WHEN $5::bool AND l.token >= $3::bigint THEN l.holders ELSE (
		SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') || jsonb_build_array($4::jsonb) FROM (SELECT {clock} AS now) c
		CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE {live}) END,
	waiters = (SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i)
		WHERE e->>'nonce' <> $2::text)
RETURNING l.holders @> jsonb_build_array(jsonb_build_object('nonce', $2::text)),
	EXISTS (SELECT FROM jsonb_array_elements(l.waiters) e WHERE split_part(e->>'nonce', '-', 1) <> $6::text)`

// plainStatements are the statements of plain leases for one table. Those of take and free have
// open fragments, which depend on the key of the advisory lock.
type plainStatements struct {
	take                  map[rows.Look]string
	free, enqueue, record string
	filled                sync.Map // statements of take and free, by their text and that of the call
}

func newPlainStatements(table pgx.Identifier) *plainStatements {
	mayNot := func(s string) string {
		return strings.Replace(s, "{decide}", strings.Replace(decide, "NOT h.mine AND CASE", "NOT h.mine AND false AND CASE", 1), -1)
	}
	seen := strings.Replace(precheck, "NOT d.granted AND", "", 1)
	seen = strings.Replace(seen, "AND NOT EXISTS", nothingEnded+"\n		AND NOT EXISTS", 1)
	take := map[rows.Look]string{}
	for look, barred := range map[rows.Look]string{
		{Holders: true}: barredNew, {Holders: true, Queued: true}: barredQueued, {}: barredNewShared, {Queued: true}: barredQueuedShared,
	} {
		take[look] = render(strings.Replace(takePlain, "{barred}", barred, 1), table)
	}
	return &plainStatements{
		take: take, free: render(strings.ReplaceAll(freePlain, "{clock}", clock), table),
		enqueue: fill(table, liveSession, mayNot(strings.Replace(enqueue, "{seen}", seen, 1))),
		record:  fill(table, liveSession, writeRecord),
	}
}

// withArgs inserts a call into a statement, and makes the other open fragments parameters after
// those of the call, in this order. It remembers the statement.
func (d *Driver) withArgs(sql string, call expression, fragments []string, args ...any) (string, []any) {
	all := slices.Concat(call.args, args)
	key := [2]string{sql, call.sql}
	if text, known := d.plain.filled.Load(key); known {
		return text.(string), all
	}
	text := strings.ReplaceAll(sql, "{call}", call.sql)
	for i, fragment := range fragments {
		text = strings.ReplaceAll(text, fragment, "$"+strconv.Itoa(len(call.args)+i+1))
	}
	d.plain.filled.Store(key, text)
	return text, all
}

// takePlain implements the function Take of [rows.Plain].
func (d *Driver) takePlain(ctx context.Context, c rows.Conn, l *lease, look rows.Look) (t rows.Taken, err error) {
	sql, fragments, args := d.plain.take[look], []string{"{name}"}, []any{l.Req.Name}
	if look.Queued {
		fragments, args = append(fragments, "{nonce}"), append(args, l.Nonce)
	}
	sql, args = d.withArgs(sql, d.conf.key(l.Req.Name).call("pg_try_advisory_lock", !look.Holders), fragments, args...)
	var got *bool
	var now time.Time
	err = c.(*link).conn.QueryRow(ctx, sql, args...).Scan(&got, &now, &t.Last)
	if err != nil {
		return t, d.explainPlain(err)
	}
	t.Got, t.Barred, t.Now = got != nil && *got, got == nil, now.UnixMicro()
	return t, nil
}

// explainPlain explains an error of takePlain. Errors of class 42, such as a missing right, come
// before a statement is executed. After others the session may have the advisory lock.
func (d *Driver) explainPlain(err error) error {
	if strings.HasPrefix(code(err), "42") {
		return d.explain(err)
	}
	return driverkit.UnknownOutcomeError{Err: d.explain(err)}
}

// freePlain implements the function Free of [rows.Plain].
func (d *Driver) freePlain(ctx context.Context, c rows.Conn, l *lease, after string) error {
	conn := c.(*link)
	call := d.conf.key(l.Req.Name).call("pg_advisory_unlock", l.Req.Shared || l.Req.Slots > 0)
	sql, args := d.withArgs(d.plain.free, call, []string{"{name}", "{after}", "{key}"}, l.Req.Name, after, conn.key)
	var was bool
	err := conn.conn.QueryRow(ctx, sql, args...).Scan(&was, nil)
	if err == nil && !was {
		err = errUnlocked
	}
	return err
}

// enqueue implements the function Enqueue of [rows.Plain].
func (d *Driver) enqueue(ctx context.Context, a *attempt) (*state, error) {
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	s, created, err := d.sendBy(inner, a, d.plain.enqueue)
	if created && err == nil {
		d.rows.CountNewRow()
	}
	return &s, err
}

// record implements the function Record of [rows.Plain].
func (d *Driver) record(ctx context.Context, l *lease, e entry, repeated bool) (found, othersWait bool, err error) {
	e.TTL = d.rows.RowTTL(l.Req)
	e.Until = e.Since + e.TTL
	encoded, err := json.Marshal(newEntry{e, d.channel(), json.Number(e.Session)})
	if err != nil {
		return false, false, err
	}
	args := []any{l.Req.Name, e.Nonce, int64(e.Token), string(encoded), repeated, d.rows.ID}
	err = d.run(ctx, func() { args[4] = true }, nil, d.plain.record, args, func(row pgx.Rows) error { return row.Scan(&found, &othersWait) })
	return found, othersWait, d.rowError(l.Req.Name, err)
}

// lockedBy implements the function LockedBy of [rows.Plain].
func (d *Driver) lockedBy(ctx context.Context, name string) (by string, err error) {
	k := d.conf.key(name).orZero()
	class, sub := "((k.n >> 32) & 4294967295)", 1
	from := "SELECT (" + k.arguments() + ") AS n"
	if k.sql == pairSQL {
		class, sub = "(k.a::bigint & 4294967295)", 2
		from = "SELECT p.a, p.b AS n FROM (VALUES (" + k.arguments() + ")) p(a, b)"
	}
	sql := fmt.Sprintf(`SELECT l.pid FROM pg_locks l, (%s) k WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = %d
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid::bigint = %s AND l.objid::bigint = (k.n::bigint & 4294967295) LIMIT 1`, from, sub, class)
	err = d.query(ctx, sql, k.args, func(row pgx.Rows) error {
		var pid int
		err := row.Scan(&pid)
		by = fmt.Sprintf("a client with the same advisory lock, server process %d", pid)
		return err
	})
	return by, err
}

// plainBackend returns the functions for plain leases.
func (d *Driver) plainBackend() *rows.Plain {
	return &rows.Plain{Take: d.takePlain, Free: d.freePlain, Enqueue: d.enqueue, Record: d.record, LockedBy: d.lockedBy}
}
