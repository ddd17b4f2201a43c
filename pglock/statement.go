package pglock

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// All that is known of a lock stands in one row, and each change is one statement that locks the row before it looks at
// it: ON CONFLICT DO UPDATE, and UPDATE at READ COMMITTED, compute the new row from the newest one. Clocks are read
// after that, with clock_timestamp: the time when the statement began may be long past.
//
// Holders and waiters are arrays of objects, in the order of their arrival. See [entry] for what stands in one.

const (
	// clock is the server's time in microseconds.
	clock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	// liveRow says whether the entry e counts at c.now.
	liveRow = `(e->>'until')::bigint > c.now`

	// liveSession says the same where entries end with their session, which has locked a key of its own for as long as
	// it lives. Statements with it run on other connections than the session's, which would get that lock again.
	liveSession = liveRow + ` AND CASE WHEN e ? 'session'
		THEN NOT pg_try_advisory_xact_lock_shared(1936615778, (e->>'session')::int) ELSE true END`

	// capped is the entry e of a holder at c.now. If it ends later than a whole TTL from now, the clock has gone back since
	// it was granted or renewed. Then it ends a TTL from now: its holder does not rely on more.
	capped = `CASE WHEN (e->>'until')::bigint > c.now + (e->>'ttl')::bigint
		THEN e || jsonb_build_object('until', c.now + (e->>'ttl')::bigint) ELSE e END`

	// cappedWaiter is the same of the entry e of a waiter, which counts for {life}.
	cappedWaiter = `CASE WHEN (e->>'until')::bigint > c.now + {life}::bigint
		THEN e || jsonb_build_object('until', c.now + {life}::bigint) ELSE e END`

	// flush makes a commit wait for the disk, also where the user's default is not to.
	flush = `CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END`

	// noFlush lets a commit not wait for the disk: if it is lost, nothing is granted twice.
	noFlush = `set_config('synchronous_commit', 'off', true)`
)

// decide says, from the row l, what becomes of a request: $1 name, $2 nonce, $3 slots, $4 TTL, $5 tokens, $6 the entry
// for holders and waiters, $7 owner, $8 shared, $9 whether to wait, $10 how long a waiter counts. Times are in
// microseconds.
const decide = `
SELECT v.granted, v.mine, v.fits, w.place,
	CASE WHEN v.granted THEN v.token + $5::bigint - 1 ELSE l.token END AS token,
	CASE WHEN v.fits THEN $3::int ELSE l.slots END AS slots,
	CASE WHEN v.granted THEN h.live || jsonb_build_array($6::jsonb || jsonb_build_object(
		'token', v.token, 'tokens', $5::bigint, 'since', c.now, 'until', c.now + $4::bigint, 'ttl', $4::bigint)) ELSE h.live END AS holders,
	CASE WHEN v.mine OR v.granted THEN w.others
		WHEN $9::bool AND v.fits AND w.place IS NULL THEN w.live || jsonb_build_array($6::jsonb || jsonb_build_object(
			'since', c.now, 'until', c.now + $10::bigint))
		ELSE w.live END AS waiters,
	c.now AS used
FROM (SELECT {clock} AS now) c
CROSS JOIN LATERAL (
	SELECT count(*) AS n, coalesce(bool_or(NOT (e->>'shared')::bool), false) AS alone, coalesce(bool_or(x.mine), false) AS mine,
		coalesce(jsonb_agg(CASE WHEN x.mine THEN e || ($6::jsonb - 'nonce') || jsonb_build_object('until', c.now + $4::bigint, 'ttl', $4::bigint)
			ELSE {capped} END ORDER BY i), '[]') AS live
	FROM (SELECT e, i, e->>'owner' = $7::text AND (e->>'shared')::bool = $8::bool AND l.slots = $3::int AND NOT e ? 'kept'
			AND e->'session' IS NOT DISTINCT FROM $6::jsonb->'session' AS mine
		FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE {live}) x) h
CROSS JOIN LATERAL (
	SELECT max(place) AS place, count(*) FILTER (WHERE i IS DISTINCT FROM place) AS n,
		count(*) FILTER (WHERE place IS NULL OR i < place) AS ahead,
		coalesce(bool_or(NOT (e->>'shared')::bool) FILTER (WHERE place IS NULL OR i < place), false) AS alone,
		coalesce(jsonb_agg(e ORDER BY i), '[]') AS live,
		coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE i IS DISTINCT FROM place), '[]') AS others
	FROM (SELECT {cappedWaiter $10} AS e, i, min(i) FILTER (WHERE e->>'nonce' = $2::text) OVER () AS place
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) x) w
CROSS JOIN LATERAL (
	SELECT k.fits, h.mine, greatest(l.token + 1, c.now) AS token, k.fits AND NOT h.mine AND CASE
		WHEN $3::int > 0 THEN h.n + w.ahead < $3::int
		WHEN $8::bool THEN NOT (h.alone OR w.alone)
		ELSE h.n + w.ahead = 0 END AS granted
	FROM (SELECT l.slots = $3::int OR h.n + w.n = 0 AS fits) k) v`

// grab grants the lease in the two cases that decide how fast a lock is: nobody is in the row, or only waiters of whom we
// are the first. It returns nothing otherwise, and then mostly has not touched the row. Its parameters are the first six of decide.
const grab = `
INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
SELECT $1::text, t.token + $5::bigint - 1, $3::int, {granted}, '[]', t.now
FROM (SELECT c.now, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')) AS token, {flush} AS flush
	FROM (SELECT {clock} AS now) c) t
WHERE NOT EXISTS (SELECT FROM {table} l WHERE l.name = $1::text AND NOT {free})
ON CONFLICT (name) DO UPDATE SET (token, slots, holders, waiters, used) = (
	SELECT t.token + $5::bigint - 1, $3::int, {granted}, CASE l.waiters WHEN '[]' THEN l.waiters ELSE l.waiters - 0 END, t.now
	FROM (SELECT c.now, greatest(c.now, l.token + 1) AS token FROM (SELECT {clock} AS now) c) t)
WHERE {free}
RETURNING l.slots, l.holders, l.waiters, l.used, l.xmax = 0, NULL::bigint`

// free and granted are parts of grab: that the row l is one of its two cases, and the holders when it has granted t.token
// at t.now.
const (
	free    = `(l.holders = '[]' AND (l.waiters = '[]' OR l.waiters->0->>'nonce' = $2::text))`
	granted = `jsonb_build_array($6::jsonb || jsonb_build_object(
		'token', t.token, 'tokens', $5::bigint, 'since', t.now, 'until', t.now + $4::bigint, 'ttl', $4::bigint))`
)

// take grants the lease, or notes the waiter; see decide for its parameters. Holders who asked for it are told when a
// waiter comes.
const take = `
WITH {seen} up AS (
	INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
	SELECT $1::text, t.token + $5::bigint - 1, $3::int, {granted}, '[]', t.now
	FROM (SELECT c.now, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')) AS token, {flush} AS flush
		FROM (SELECT {clock} AS now) c) t {unlessSeen}
	ON CONFLICT (name) DO UPDATE SET (token, slots, holders, waiters, used) =
		(SELECT d.token, d.slots, d.holders, d.waiters, d.used FROM ({decide}) d)
	RETURNING l.slots, l.holders, l.waiters, l.used, l.xmax = 0 AS made)
SELECT slots, holders, waiters, used, made, CASE WHEN waiters @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
	THEN (SELECT count(pg_notify(e->>'channel', 'w' || (e->>'nonce'))) FROM jsonb_array_elements(holders) e
		WHERE e ? 'tell' AND e->>'channel' <> $6::jsonb->>'channel') END
FROM up {orSeen}`

// The parts that make try of take, for those who would change nothing if they are refused, because they do not wait or
// wait already: it looks first, and then writes nothing. What it looks at is as it was when the statement began.
const (
	seen = `seen AS MATERIALIZED (
	SELECT d.* FROM {table} l CROSS JOIN LATERAL ({decide}) d
	WHERE l.name = $1::text AND NOT d.granted AND NOT d.mine AND (NOT $9::bool OR NOT d.fits OR d.place IS NOT NULL)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders) e WHERE (e->>'until')::bigint > d.used + (e->>'ttl')::bigint)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.waiters) e WHERE (e->>'until')::bigint > d.used + $10::bigint)),`
	unlessSeen = `WHERE NOT EXISTS (SELECT FROM seen)`
	orSeen     = `UNION ALL SELECT slots, holders, waiters, used, false, 0 FROM seen`
)

// wake notifies the waiters of the new row l that can be granted now.
const wake = `
CASE WHEN l.waiters <> '[]' THEN (
	SELECT count(pg_notify(w.e->>'channel', 'g' || (w.e->>'nonce')))
	FROM (SELECT {clock} AS now) c
	CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(bool_or(NOT (e->>'shared')::bool), false) AS alone
		FROM jsonb_array_elements(l.holders) e WHERE {live}) h
	CROSS JOIN LATERAL (SELECT e, count(*) OVER (ORDER BY i) - 1 AS ahead,
		coalesce(bool_or(NOT (e->>'shared')::bool) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS alone
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) w
	WHERE CASE WHEN l.slots > 0 THEN h.n + w.ahead < l.slots
		WHEN (w.e->>'shared')::bool THEN NOT (h.alone OR w.alone)
		ELSE h.n + w.ahead = 0 END) END`

// let is release in the case that decides how fast a lock is handed over: the hold is the only one and is not kept, and
// the first who waits, if anybody does, waits alone. It returns nothing otherwise.
const let = `
UPDATE {table} l SET used = {clock}, holders = '[]'
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND jsonb_array_length(l.holders) = 1
	AND (l.holders->0->>'token')::bigint = $2::bigint AND l.holders->0->>'owner' = $3::text AND NOT l.holders->0 ? 'kept'
	AND (l.holders->0->>'until')::bigint > {clock} AND least((l.holders->0->>'since')::bigint, {clock}) + $4::bigint <= {clock}
	AND (l.waiters = '[]' OR l.slots = 0 AND NOT (l.waiters->0->>'shared')::bool AND (l.waiters->0->>'until')::bigint > {clock})
RETURNING CASE WHEN l.waiters <> '[]' THEN pg_notify(l.waiters->0->>'channel', 'g' || (l.waiters->0->>'nonce'))::text END`

// next gives a token to who has no lease.
const next = `
INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
SELECT $1::text, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')), 0, '[]', '[]', c.now
FROM (SELECT {clock} AS now, {flush} AS flush) c
ON CONFLICT (name) DO UPDATE SET token = greatest({clock}, l.token + 1), used = {clock}
RETURNING l.token`

// release ends the hold of $2 token and $3 owner of $1 name, or keeps it until it has lasted $4: after the clock has gone
// back, for $4 from now.
const release = `
UPDATE {table} l SET used = {clock}, holders = (
	SELECT coalesce(jsonb_agg(CASE WHEN x.ended THEN e - 'session' || jsonb_build_object('kept', true, 'until', x.least, 'ttl', $4::bigint)
		ELSE e END ORDER BY i) FILTER (WHERE NOT x.ended OR x.least > x.now), '[]')
	FROM (SELECT e, i, c.now, least((e->>'since')::bigint, c.now) + $4::bigint AS least,
			(e->>'token')::bigint = $2::bigint AND e->>'owner' = $3::text AND NOT e ? 'kept' AS ended
		FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		WHERE {live}) x)
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND {held}
RETURNING {wake}`

// breakHold is release by force, of a hold that must not come back after a crash.
const breakHold = `
UPDATE {table} l SET used = {clock}, holders = (
	SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
	WHERE NOT ((e->>'token')::bigint = $2::bigint AND e->>'owner' = $3::text))
FROM (SELECT {flush}) f
WHERE l.name = $1::text AND {held}
RETURNING {wake}, (SELECT count(pg_notify(e->>'channel', 'b' || (e->>'nonce'))) FROM {table} o
	CROSS JOIN LATERAL jsonb_array_elements(o.holders) e
	WHERE o.name = $1::text AND (e->>'token')::bigint = $2::bigint)`

// held says that the hold of $2 and $3 has not ended.
const held = `
EXISTS (SELECT FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
	WHERE (e->>'token')::bigint = $2::bigint AND e->>'owner' = $3::text AND NOT e ? 'kept' AND {live})`

// withdraw removes what the attempt of $2 nonce has left of $1 name: a waiter, or a hold that nobody was told of.
const withdraw = `
UPDATE {table} l SET used = {clock},
	holders = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'nonce' <> $2::text), '[]')
		FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)),
	waiters = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'nonce' <> $2::text), '[]')
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i))
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND (l.holders || l.waiters) @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
RETURNING {wake}`

// renew lets the holds of $1 names and $2 tokens last $3, and returns the tokens that are held under each name. Rows are
// locked in the order of names, so that two of these never wait for each other.
const renew = `
UPDATE {table} l SET holders = (
	SELECT coalesce(jsonb_agg(CASE WHEN x.ttl IS NULL THEN e ELSE e || jsonb_build_object('until', x.now + x.ttl, 'ttl', x.ttl) END ORDER BY i), '[]')
	FROM (SELECT e, i, c.now, CASE WHEN NOT e ? 'kept' THEN r.ttl END AS ttl
		FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		LEFT JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) r(name, token, ttl)
			ON r.name = l.name AND r.token = (e->>'token')::bigint
		WHERE {live}) x)
FROM (SELECT name, {flush} FROM {table} WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE) k
WHERE l.name = k.name
RETURNING l.name, ARRAY(SELECT (e->>'token')::bigint FROM jsonb_array_elements(l.holders) e WHERE NOT e ? 'kept'), l.waiters <> '[]'`

// confirm is renew where the session, and no time, ends holds: it only looks.
const confirm = `
SELECT l.name, ARRAY(SELECT (e->>'token')::bigint FROM jsonb_array_elements(l.holders) e WHERE NOT e ? 'kept' AND {live}), l.waiters <> '[]'
FROM {table} l, (SELECT {clock} AS now) c
WHERE l.name = ANY ($1::text[]) AND cardinality($2::bigint[]) + cardinality($3::bigint[]) > 0`

// look shows the rows of $1 names, less what has ended.
const look = `SELECT {row} FROM {table} l, (SELECT {clock} AS now) c WHERE l.name = ANY ($1::text[])`

// row is what is read of a row l at c.now.
const row = `l.name, l.slots,
	(SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE {live}),
	(SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}), c.now`

// refresh is look for the names that a process waits for; its waiters, of the attempts $2, count for $3 more.
const refresh = `
WITH k AS (SELECT name FROM {table} WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE),
	c AS MATERIALIZED (SELECT {clock} AS now, {noflush} FROM (SELECT count(*) FROM k) n)
UPDATE {table} l SET waiters = (
	SELECT coalesce(jsonb_agg(CASE WHEN e->>'nonce' = ANY ($2::text[]) THEN e || jsonb_build_object('until', c.now + $3::bigint) ELSE e END ORDER BY i), '[]')
	FROM (SELECT {cappedWaiter $3} AS e, i FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) w),
	holders = (SELECT coalesce(jsonb_agg({capped} ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM k, c WHERE l.name = k.name
RETURNING {row}`

// list shows the first rows in the order of names that begin with $1, from $2 to $3, in which somebody may be.
const list = `SELECT {row} FROM (SELECT * FROM {table}
	WHERE name BETWEEN $2::text AND $3::text AND starts_with(name, $1::text) AND name <> '' AND (holders <> '[]' OR waiters <> '[]')
	ORDER BY name LIMIT 100) l, (SELECT {clock} AS now) c ORDER BY l.name`

// prune forgets locks that were not used for $1 and that nobody holds, 1000 at a time. Their tokens are not above the
// one that an earlier call of raise has noted.
const prune = `
DELETE FROM {table} WHERE name IN (SELECT l.name FROM {table} l, (SELECT {clock} AS now) c
	WHERE l.name <> '' AND l.used < c.now - $1::bigint AND l.token <= (SELECT token FROM {table} WHERE name = '')
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders || l.waiters) e WHERE {live})
	LIMIT 1000 FOR UPDATE OF l SKIP LOCKED)`

// raise notes, in the row without a name, the highest token of the locks that a later prune may forget. A row that is
// made anew starts above it.
const raise = `
UPDATE {table} f SET token = greatest(f.token, m.token), used = {clock}
FROM (SELECT max(token) AS token FROM {table} WHERE name <> '' AND used < {clock} - $1::bigint) m
WHERE f.name = '' AND f.token < m.token`

// statements are those of one table.
type statements struct {
	grab, take, try, next, let, release, breakHold, withdraw, renew, confirm, look, refresh, list, prune, raise, lockRow, current string
}

func newStatements(table pgx.Identifier, live string) statements {
	fill := func(sql string, parts ...string) string {
		parts = append(parts, "{seen}", "", "{unlessSeen}", "", "{orSeen}", "", "{decide}", decide, "{capped}", capped,
			"{cappedWaiter $10}", strings.ReplaceAll(cappedWaiter, "{life}", "$10"), "{cappedWaiter $3}", strings.ReplaceAll(cappedWaiter, "{life}", "$3"), "{free}", free, "{granted}", granted, "{wake}", wake,
			"{held}", held, "{row}", row, "{live}", live, "{clock}", clock, "{flush}", flush, "{noflush}", noFlush)
		for i := 0; i < len(parts); i += 2 {
			sql = strings.ReplaceAll(sql, parts[i], parts[i+1])
		}
		return render(sql, table)
	}
	return statements{
		grab: fill(grab), take: fill(take), try: fill(take, "{seen}", seen, "{unlessSeen}", unlessSeen, "{orSeen}", orSeen),
		release: fill(release), breakHold: fill(breakHold), withdraw: fill(withdraw), renew: fill(renew), confirm: fill(confirm),
		next: fill(next), let: fill(let), look: fill(look), refresh: fill(refresh), list: fill(list), prune: fill(prune), raise: fill(raise),
		lockRow: fill(lockRow), current: fill(current),
	}
}
