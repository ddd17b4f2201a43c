package pglock

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// One row stores all that is known of a lock. Each change is one statement that locks the row
// before it reads it: ON CONFLICT DO UPDATE, and UPDATE at READ COMMITTED, compute the new row
// from the newest one. They read the clock after that, with clock_timestamp, because the
// statement may have begun long before.
//
// Holders and waiters are arrays of objects, in the order of their arrival. See [entry] for the
// fields.

const (
	// clock is the server's time in microseconds.
	clock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	// liveRow is true if the entry e counts at the time c.now.
	liveRow = `(e->>'until')::bigint > c.now`

	// capped is the entry e of a holder at the time c.now. If it ends more than a whole TTL from
	// now, the clock was set back after it was granted or renewed. It then ends one TTL from now:
	// its holder does not rely on more.
	capped = `CASE WHEN (e->>'until')::bigint > c.now + (e->>'ttl')::bigint
		THEN e || jsonb_build_object('until', c.now + (e->>'ttl')::bigint) ELSE e END`

	// cappedWaiter is the same for the entry e of a waiter, which counts for {life}.
	cappedWaiter = `CASE WHEN (e->>'until')::bigint > c.now + {life}::bigint
		THEN e || jsonb_build_object('until', c.now + {life}::bigint) ELSE e END`

	// flush makes a commit wait for the disk, even if the user's default is not to wait.
	flush = `CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END`

	// noFlush lets a commit not wait for the disk. If the commit is lost, nothing is granted
	// twice.
	noFlush = `set_config('synchronous_commit', 'off', true)`
)

// decide computes the new state of the row l for a request: $1 name, $2 nonce, $3 slots, $4 TTL,
// $5 tokens, $6 the entry for holders or waiters, $7 owner, $8 shared, $9 whether to wait, $10
// how long a waiter counts, $11 the nonces of entries that this process is removing. Times are in
// microseconds. Its owner does not get such an entry again: the removal, which may come late, would
// end its lease. An entry that the owner gets from another process takes the nonce of the request,
// so that the other process can't remove it with its own attempt.
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
		coalesce(jsonb_agg(CASE WHEN x.mine
				THEN e || CASE split_part(e->>'nonce', '-', 1) WHEN split_part($2::text, '-', 1) THEN $6::jsonb - 'nonce' ELSE $6::jsonb END ||
				jsonb_build_object('until', c.now + $4::bigint, 'ttl', $4::bigint)
			ELSE {capped} END ORDER BY i), '[]') AS live
	FROM (SELECT e, i, e->>'owner' = $7::text AND (e->>'shared')::bool = $8::bool AND l.slots = $3::int AND NOT e ? 'kept' AS mine
		FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		WHERE {live} AND (e->>'owner' = $7::text AND NOT e ? 'kept' AND e->>'nonce' = ANY ($11::text[])) IS NOT TRUE) x) h
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

// takeOne grants the lease of the request r if the row exists and is free. Its parameters are the
// first six of decide. If another transaction has locked the row, it waits for that.
const takeOne = `
UPDATE {table} l SET {grant}
FROM (SELECT $1::text AS name, $2::text AS nonce, $3::int AS slots, $4::bigint AS ttl, $5::bigint AS tokens, $6::text AS entry) r,
	(SELECT {clock} AS now, {flush} OFFSET 0) c
WHERE l.name = r.name AND {isFree}
RETURNING l.token - r.tokens + 1, l.waiters`

// takeAll is takeOne for arrays of requests. It also creates rows, and skips those that others have
// locked. It answers with one row for all grants. The planner does not see the parameters, so that
// it keeps its plan.
const takeAll = `
WITH r AS MATERIALIZED (SELECT * FROM unnest((SELECT $1::text[]), (SELECT $2::text[]), (SELECT $3::int[]), (SELECT $4::bigint[]),
		(SELECT $5::bigint[]), (SELECT $6::text[])) r(name, nonce, slots, ttl, tokens, entry)),
	k AS MATERIALIZED (SELECT l.ctid AS tid, r.* FROM r JOIN {table} l ON l.name = r.name WHERE {isFree} FOR UPDATE OF l SKIP LOCKED),
	c AS MATERIALIZED (SELECT {clock} AS now, {flush} FROM (SELECT count(*) FROM k) n),
	found AS (UPDATE {table} l SET {grant} FROM k r, c WHERE l.ctid = r.tid AND {isFree}
		RETURNING r.nonce, l.token - r.tokens + 1 AS token, l.waiters, false AS created),
	made AS (INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
		SELECT t.name, t.token + t.tokens - 1, t.slots, {granted}, '[]', t.now
		FROM (SELECT r.*, c.now, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')) AS token FROM r, c
			WHERE NOT EXISTS (SELECT FROM {table} o WHERE o.name = r.name)) t ORDER BY t.name
		ON CONFLICT (name) DO NOTHING
		RETURNING l.holders->0->>'nonce', (l.holders->0->>'token')::bigint, l.waiters, true)
SELECT array_agg(nonce), array_agg(token), array_agg(waiters::text), array_agg(created)
FROM (SELECT * FROM found UNION ALL SELECT * FROM made) g`

// These are parts of takeOne, takeAll and acquire: the condition that the row l is free for the
// request r, what a grant writes into it at the time c.now, and the new holders for t, which is a
// request with its token and the time.
const (
	isFree = `l.holders = '[]' AND (l.waiters = '[]' OR l.waiters->0->>'nonce' = r.nonce)`

	grant = `slots = r.slots, used = c.now, waiters = CASE l.waiters WHEN '[]' THEN l.waiters ELSE l.waiters - 0 END,
	(token, holders) = (SELECT t.token + t.tokens - 1, {granted} FROM (SELECT r.*, c.now, greatest(l.token + 1, c.now) AS token) t)`

	granted = `jsonb_build_array(t.entry::jsonb || jsonb_build_object(
		'token', t.token, 'tokens', t.tokens, 'since', t.now, 'until', t.now + t.ttl, 'ttl', t.ttl))`
)

// acquire is the full statement: it grants the lease, or adds the waiter. Its parameters are
// those of decide. If it adds a waiter, it notifies the holders that asked for that.
const acquire = `
WITH {seen} up AS (
	INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
	SELECT $1::text, t.token + t.tokens - 1, $3::int, {granted}, '[]', t.now
	FROM (SELECT c.now, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')) AS token, {flush},
			$4::bigint AS ttl, $5::bigint AS tokens, $6::text AS entry
		FROM (SELECT {clock} AS now) c) t {unlessSeen}
	ON CONFLICT (name) DO UPDATE SET (token, slots, holders, waiters, used) =
		(SELECT d.token, d.slots, d.holders, d.waiters, d.used FROM ({decide}) d)
	RETURNING l.slots, l.holders, l.waiters, l.used, l.xmax = 0 AS made)
SELECT slots, holders, waiters, used, made, CASE WHEN waiters @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
	THEN (SELECT count(pg_notify(e->>'channel', 'w' || (e->>'nonce'))) FROM jsonb_array_elements(holders) e
		WHERE e ? 'tell' AND e->>'channel' <> $6::jsonb->>'channel') END
FROM up {orSeen}`

// These parts turn acquire into acquirePrechecked, for requests that change nothing if they are
// refused, because they do not wait or are queued already. It first reads the row without a lock,
// as of the beginning of the statement, and writes nothing if that refuses the request.
const (
	precheck = `seen AS MATERIALIZED (
	SELECT d.* FROM {table} l CROSS JOIN LATERAL ({decide}) d
	WHERE l.name = $1::text AND NOT d.granted AND NOT d.mine AND (NOT $9::bool OR NOT d.fits OR d.place IS NOT NULL)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders) e WHERE (e->>'until')::bigint > d.used + (e->>'ttl')::bigint)
		AND NOT EXISTS (SELECT FROM jsonb_array_elements(l.waiters) e WHERE (e->>'until')::bigint > d.used + $10::bigint)),`
	unlessRefused = `WHERE NOT EXISTS (SELECT FROM seen)`
	orRefused     = `UNION ALL SELECT slots, holders, waiters, used, false, 0 FROM seen`
)

// wake notifies those waiters of the new row l that can be granted now.
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

// freeOne ends the lease r if it is the only one in the row and need not be kept, and the first
// waiter, if there is one, is exclusive. Otherwise it returns nothing. Parameters: name, token
// or 0, id.
const freeOne = `
UPDATE {table} l SET used = c.now, holders = '[]'
FROM (SELECT $1::text AS name, $2::bigint AS token, $3::text AS id) r, (SELECT {clock} AS now, {noflush} OFFSET 0) c
WHERE l.name = r.name AND {isEndable}
RETURNING {wakeFirst}`

// freeAll is freeOne for arrays of leases. It skips the rows that others have locked, and answers
// with one row, as takeAll does.
const freeAll = `
WITH k AS MATERIALIZED (SELECT l.ctid AS tid, r.* FROM unnest((SELECT $1::text[]), (SELECT $2::bigint[]), (SELECT $3::text[]))
		WITH ORDINALITY r(name, token, id, i)
		JOIN {table} l ON l.name = r.name FOR UPDATE OF l SKIP LOCKED),
	c AS MATERIALIZED (SELECT {clock} AS now, {noflush} FROM (SELECT count(*) FROM k) n),
	freed AS (UPDATE {table} l SET used = c.now, holders = '[]' FROM k r, c WHERE l.ctid = r.tid AND {isEndable}
		RETURNING r.i, {wakeFirst} AS woken)
SELECT array_agg(i), count(woken) FROM freed`

// These are parts of freeOne and freeAll: the condition, and the notification of the first waiter.
const (
	isEndable = `jsonb_array_length(l.holders) = 1 AND l.holders->0->>'owner' = r.id
	AND (r.token = 0 OR (l.holders->0->>'token')::bigint = r.token)
	AND NOT l.holders->0 ? 'kept' AND (l.holders->0->>'until')::bigint > c.now
	AND (NOT l.holders->0 ? 'min_hold'
		OR least((l.holders->0->>'since')::bigint, c.now) + (l.holders->0->>'min_hold')::bigint <= c.now)
	AND (l.waiters = '[]' OR l.slots = 0 AND NOT (l.waiters->0->>'shared')::bool AND (l.waiters->0->>'until')::bigint > c.now)`

	wakeFirst = `CASE WHEN l.waiters <> '[]' THEN pg_notify(l.waiters->0->>'channel', 'g' || (l.waiters->0->>'nonce'))::text END`
)

// nextToken issues a token without a lease.
const nextToken = `
INSERT INTO {table} AS l (name, token, slots, holders, waiters, used)
SELECT $1::text, greatest(c.now, (SELECT token + 1 FROM {table} WHERE name = '')), 0, '[]', '[]', c.now
FROM (SELECT {clock} AS now, {flush} AS flush) c
ON CONFLICT (name) DO UPDATE SET token = greatest({clock}, l.token + 1), used = {clock}
RETURNING l.token`

// release ends the lease of $1 name, $2 token or 0, and $3 id, or keeps it until it has lasted its
// MinHold. If the clock was set back, it keeps the lease for MinHold from now.
const release = `
UPDATE {table} l SET used = {clock}, holders = (
	SELECT coalesce(jsonb_agg(CASE WHEN x.ended THEN e || jsonb_build_object('kept', true, 'until', x.least, 'ttl', e->'min_hold')
		ELSE e END ORDER BY i) FILTER (WHERE NOT x.ended OR x.least > x.now), '[]')
	FROM (SELECT e, i, c.now, least((e->>'since')::bigint, c.now) + coalesce((e->>'min_hold')::bigint, 0) AS least,
			{isIt} AND NOT e ? 'kept' AS ended
		FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		WHERE {live}) x)
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND {held}
RETURNING {wake}`

// breakLease is a forced release, which must survive a crash. It also ends what MinHold keeps of a
// lease that was released.
const breakLease = `
UPDATE {table} l SET used = {clock}, holders = (
	SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
	WHERE NOT ({isIt}))
FROM (SELECT {flush}) f
WHERE l.name = $1::text AND {taken}
RETURNING {wake}, (SELECT count(pg_notify(e->>'channel', 'b' || (e->>'nonce'))) FROM {table} o
	CROSS JOIN LATERAL jsonb_array_elements(o.holders) e
	WHERE o.name = $1::text AND {isIt})`

// setLabel changes the label of the lease of $1 name, $2 token or 0, and $3 id to $4.
const setLabel = `
UPDATE {table} l SET holders = (
	SELECT jsonb_agg(CASE WHEN {isIt} AND NOT e ? 'kept' THEN e || jsonb_build_object('label', $4::text) ELSE e END ORDER BY i)
	FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND {held}
RETURNING l.name`

// isIt is true if the entry e of a holder has the id $3 and the token $2. Who knows only the id
// gives 0 as the token.
const isIt = `e->>'owner' = $3::text AND ($2::bigint = 0 OR (e->>'token')::bigint = $2::bigint)`

// held is true if the lease of $2 token or 0, and $3 id, has not ended.
const held = `
EXISTS (SELECT FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
	WHERE {isIt} AND NOT e ? 'kept' AND {live})`

// taken is held, or true if the lease was released and is kept until MinHold has passed.
const taken = `
EXISTS (SELECT FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
	WHERE {isIt} AND {live})`

// removeEntry removes what the attempt of $2 nonce has left in the row of $1 name: a waiter, or a
// lease that was never returned to a caller.
const removeEntry = `
UPDATE {table} l SET used = {clock},
	holders = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'nonce' <> $2::text), '[]')
		FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)),
	waiters = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'nonce' <> $2::text), '[]')
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i))
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND (l.holders || l.waiters) @> jsonb_build_array(jsonb_build_object('nonce', $2::text))
RETURNING {wake}`

// withdraw removes the waiters of $2 owner from the row of $1 name.
const withdraw = `
UPDATE {table} l SET used = {clock},
	waiters = (SELECT coalesce(jsonb_agg(e ORDER BY i) FILTER (WHERE e->>'owner' <> $2::text), '[]')
		FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i))
FROM (SELECT {noflush}) f
WHERE l.name = $1::text AND l.waiters @> jsonb_build_array(jsonb_build_object('owner', $2::text))
RETURNING {wake}`

// renew extends the leases of $1 names, $2 ids and $3 tokens or 0 to $4 from now, and returns
// the ids and the tokens that are held under each name. It shortens no lease, unless the clock
// was set back since the lease was granted. It locks rows in the order of names, so that two
// renewals never deadlock. As renewUnlocked, it skips the rows that others have locked.
const renew = `
UPDATE {table} l SET holders = (
	SELECT coalesce(jsonb_agg(CASE WHEN x.ttl IS NULL THEN e ELSE e || jsonb_build_object('until', x.now + x.ttl, 'ttl', x.ttl) END ORDER BY i), '[]')
	FROM (SELECT e, i, c.now, CASE WHEN NOT e ? 'kept' AND r.ttl IS NOT NULL THEN greatest(r.ttl, least((e->>'until')::bigint - c.now, (e->>'ttl')::bigint)) END AS ttl
		FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i)
		LEFT JOIN unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) r(name, id, token, ttl)
			ON r.name = l.name AND r.id = e->>'owner' AND (r.token = 0 OR r.token = (e->>'token')::bigint)
		WHERE {live}) x)
FROM (SELECT name, {flush} FROM {table} WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE {skip}) k
WHERE l.name = k.name
RETURNING l.name, ARRAY(SELECT e->>'owner' FROM {holding} ORDER BY i), ARRAY(SELECT (e->>'token')::bigint FROM {holding} ORDER BY i),
	l.waiters <> '[]'`

// holding are the entries e of the holders in the row l that were not released, with their
// places i.
const holding = `jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE NOT e ? 'kept'`

// read reads the rows of $1 names, without entries that have ended.
const read = `SELECT {row} FROM {table} l, (SELECT {clock} AS now) c WHERE l.name = ANY ($1::text[])`

// row is the columns that are read from a row l at the time c.now.
const row = `l.name, l.slots,
	(SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE {live}),
	(SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}), c.now`

// heartbeat is read for the names that a process waits for. It also lets the waiters with $2
// nonces count for $3 more, and caps the ends of all entries. As heartbeatUnlocked, it skips the
// rows that others have locked.
const heartbeat = `
WITH k AS (SELECT name FROM {table} WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE {skip}),
	c AS MATERIALIZED (SELECT {clock} AS now, {noflush} FROM (SELECT count(*) FROM k) n)
UPDATE {table} l SET waiters = (
	SELECT coalesce(jsonb_agg(CASE WHEN e->>'nonce' = ANY ($2::text[]) THEN e || jsonb_build_object('until', c.now + $3::bigint) ELSE e END ORDER BY i), '[]')
	FROM (SELECT {cappedWaiter $3} AS e, i FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}) w),
	holders = (SELECT coalesce(jsonb_agg({capped} ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i))
FROM k, c WHERE l.name = k.name
RETURNING {row}`

// list reads the first 100 rows that may have holders or waiters, in the order of names, whose
// names begin with $1 and lie between $2 and $3.
const list = `SELECT {row} FROM ({page}) l, (SELECT {clock} AS now) c ORDER BY l.name`

// listNames reads only the names of these rows.
const listNames = `SELECT l.name FROM ({page}) l ORDER BY l.name`

// pageRows are the rows of list.
const pageRows = `SELECT * FROM {table}
	WHERE name BETWEEN $2::text AND $3::text AND starts_with(name, $1::text) AND name <> '' AND (holders <> '[]' OR waiters <> '[]')
	ORDER BY name LIMIT 100`

// prune deletes up to 1000 locks that were not used for $1 and that nobody holds. Their tokens
// are not above the floor that an earlier setFloor has noted.
const prune = `
DELETE FROM {table} WHERE name IN (SELECT l.name FROM {table} l, (SELECT {clock} AS now) c
	WHERE l.name <> '' AND l.used < c.now - $1::bigint AND l.token <= (SELECT token FROM {table} WHERE name = '')
		AND CASE WHEN {wellFormed} THEN NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders || l.waiters) e WHERE {live}) ELSE false END
	LIMIT 1000 FOR UPDATE OF l SKIP LOCKED)`

// wellFormed is true if {live} can be computed for all entries of the row l. One row for which it
// can't must not prevent the pruning of all others.
const wellFormed = `CASE WHEN jsonb_typeof(l.holders) = 'array' AND jsonb_typeof(l.waiters) = 'array' THEN
	NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders || l.waiters) e WHERE coalesce(e->>'until', '') !~ '^[0-9]{1,18}$') ELSE false END`

// setFloor notes, in the row with the empty name, the highest token of the locks that a later
// prune may delete. A row that is created again starts above it. setFloor takes locks that were
// not used for $1, and ignores tokens that are ahead of the clock by more than $2: noting one
// would raise the tokens of all new names.
const setFloor = `
UPDATE {table} f SET token = greatest(f.token, m.token), used = {clock}
FROM (SELECT max(token) AS token FROM {table} WHERE name <> '' AND used < {clock} - $1::bigint
	AND token <= {clock} + $2::bigint) m
WHERE f.name = '' AND f.token < m.token`

// skipLocked makes a statement skip the rows that other transactions have locked, instead of
// waiting for them.
const skipLocked = `SKIP LOCKED`

// statements are the statements for one table.
type statements struct {
	takeOne, takeAll, freeOne, freeAll, acquire, acquirePrechecked, nextToken, release, breakLease, setLabel, removeEntry, withdraw, renew, renewUnlocked, read, heartbeat, heartbeatUnlocked, list, listNames, prune, setFloor, lockRow, current string
}

func newStatements(table pgx.Identifier) statements {
	fill := func(sql string, parts ...string) string { return fill(table, sql, parts...) }
	return statements{
		takeOne: fill(takeOne), takeAll: fill(takeAll), freeOne: fill(freeOne), freeAll: fill(freeAll), acquire: fill(acquire), acquirePrechecked: fill(acquire, "{seen}", precheck, "{unlessSeen}", unlessRefused, "{orSeen}", orRefused),
		release: fill(release), breakLease: fill(breakLease), setLabel: fill(setLabel), removeEntry: fill(removeEntry), withdraw: fill(withdraw),
		renew: fill(renew), renewUnlocked: fill(renew, "{skip}", skipLocked),
		nextToken: fill(nextToken), read: fill(read), heartbeat: fill(heartbeat), heartbeatUnlocked: fill(heartbeat, "{skip}", skipLocked), list: fill(list), listNames: fill(listNames), prune: fill(prune), setFloor: fill(setFloor),
		lockRow: fill(lockRow), current: fill(current),
	}
}

// fill inserts the parts, and the fragments above, into a statement.
func fill(table pgx.Identifier, sql string, parts ...string) string {
	parts = append(parts, "{seen}", "", "{unlessSeen}", "", "{orSeen}", "", "{skip}", "", "{decide}", decide, "{capped}", capped,
		"{cappedWaiter $10}", strings.ReplaceAll(cappedWaiter, "{life}", "$10"), "{cappedWaiter $3}", strings.ReplaceAll(cappedWaiter, "{life}", "$3"), "{grant}", grant, "{isFree}", isFree, "{granted}", granted, "{isEndable}", isEndable, "{wakeFirst}", wakeFirst, "{wake}", wake,
		"{held}", held, "{taken}", taken, "{isIt}", isIt, "{holding}", holding, "{page}", pageRows, "{wellFormed}", wellFormed, "{row}", row, "{live}", liveRow, "{clock}", clock, "{flush}", flush, "{noflush}", noFlush)
	for i := 0; i < len(parts); i += 2 {
		sql = strings.ReplaceAll(sql, parts[i], parts[i+1])
	}
	return render(sql, table)
}
