package sqlitelock

// The statements of this package. Times are nanoseconds of the boot clock, except until, which is
// deadline by the wall clock. Bytes are offsets in the sidecar.
//
// The modes of leases are numbers here: 0 process, 1 inherit, 2 detached, 3 kept.

// createTables creates the tables that are missing.
//
// meta has one row. counter is the greatest fencing token or ticket ever issued. blocks is the
// number of blocks of bytes ever taken. boot is the boot that all rows belong to. live is the inode
// of the sidecar. swept is the last name that a grant has swept for rows of dead processes.
//
// In leases, ttl is how long the lease had left when deadline and until were written.
var createTables = [...]string{
	`CREATE TABLE IF NOT EXISTS meta (
		id      INTEGER PRIMARY KEY CHECK (id = 1),
		counter INTEGER NOT NULL,
		blocks  INTEGER NOT NULL,
		boot    TEXT    NOT NULL,
		live    INTEGER NOT NULL,
		swept   TEXT    NOT NULL
	) STRICT`,
	`CREATE TABLE IF NOT EXISTS leases (
		name     TEXT    NOT NULL,
		token    INTEGER NOT NULL,
		id       TEXT    NOT NULL,
		mode     INTEGER NOT NULL,
		shared   INTEGER NOT NULL,
		slots    INTEGER NOT NULL,
		byte     INTEGER NOT NULL,
		process  INTEGER NOT NULL,
		since    INTEGER NOT NULL,
		min_hold INTEGER NOT NULL,
		deadline INTEGER NOT NULL,
		until    INTEGER NOT NULL,
		ttl      INTEGER NOT NULL,
		host     TEXT    NOT NULL,
		pid      INTEGER NOT NULL,
		label    TEXT    NOT NULL,
		kind     INTEGER NOT NULL,
		PRIMARY KEY (name, token)
	) STRICT, WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS waiters (
		name   TEXT    NOT NULL,
		ticket INTEGER NOT NULL,
		id     TEXT    NOT NULL,
		shared INTEGER NOT NULL,
		slots  INTEGER NOT NULL,
		byte   INTEGER NOT NULL,
		since  INTEGER NOT NULL,
		called INTEGER NOT NULL,
		host   TEXT    NOT NULL,
		pid    INTEGER NOT NULL,
		label  TEXT    NOT NULL,
		kind   INTEGER NOT NULL,
		PRIMARY KEY (name, ticket)
	) STRICT, WITHOUT ROWID`,
}

// The row of meta. A row that was deleted has issued tickets, and blocks whose bytes may be in use.
// The clock, in microseconds and in milliseconds, is ahead of both.
const (
	insertMeta  = `INSERT INTO meta VALUES (1, 0, 0, '', 0, '')`
	replaceMeta = `INSERT OR IGNORE INTO meta SELECT 1, ms * 1000, ms, '', 0, ''
		FROM (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS ms)`
)

// Reading and writing meta.
const (
	selectMeta = `SELECT counter, blocks, boot, live, swept FROM meta`
	updateMeta = `UPDATE meta SET counter = ?, blocks = ?, boot = ?, live = ?, swept = ?`
)

// Leases. scanLease reads the columns of leaseColumns. A request finds its lease by name and id,
// and changes it by its key, in one transaction.
const (
	leaseColumns = `SELECT name, token, id, mode, shared, slots, byte, process, since, min_hold, deadline, host, pid, label, kind FROM leases`

	selectLeases = leaseColumns + ` WHERE name = ?`
	selectLease  = leaseColumns + ` WHERE name = ? AND id = ? AND mode <> 3`

	insertLease = `INSERT INTO leases
		(name, token, id, mode, shared, slots, byte, process, since, min_hold, deadline, until, ttl, host, pid, label, kind)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	extendLease  = `UPDATE leases SET deadline = ?, until = ?, ttl = ? WHERE name = ? AND token = ?`
	inheritLease = `UPDATE leases SET mode = 1, byte = ? WHERE name = ? AND token = ?`
	keepLease    = `UPDATE leases SET mode = 3, deadline = ?, until = ?, ttl = ? WHERE name = ? AND token = ?`
	setHolder    = `UPDATE leases SET host = ?, pid = ?, label = ?, kind = ? WHERE name = ? AND token = ?`
	deleteLease  = `DELETE FROM leases WHERE name = ? AND token = ?`
)

// Waiters. readQueue reads the columns of selectWaiters.
const (
	selectWaiters = `SELECT ticket, byte, since, called, slots, shared, id, host, pid, label, kind FROM waiters
		WHERE name = ? AND ticket < ? ORDER BY ticket`
	insertWaiter = `INSERT INTO waiters (name, ticket, id, shared, slots, byte, since, called, host, pid, label, kind)
		VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`
	selectFirstWaiters = `SELECT byte FROM waiters WHERE name = ? ORDER BY ticket LIMIT 32`
	callWaiter         = `UPDATE waiters SET called = ? WHERE name = ? AND ticket = ?`
	uncallWaiter       = `UPDATE waiters SET called = 0 WHERE name = ? AND ticket = ? AND called <> 0`
	deleteWaiter       = `DELETE FROM waiters WHERE name = ? AND ticket = ?`
	withdrawWaiter     = `DELETE FROM waiters WHERE name = ? AND id = ? RETURNING byte`
)

// The first transaction of another boot, or with another sidecar. moveDeadlines takes the clocks.
const (
	countProcessLeases = `SELECT count(*) FROM leases WHERE deadline > ? AND mode IN (0, 1)`
	moveDeadlines      = `UPDATE leases SET
			since    = ?1 + min(max(until - ?2, 0), ttl) - (deadline - since),
			deadline = ?1 + min(max(until - ?2, 0), ttl),
			until    = ?2 + min(max(until - ?2, 0), ttl),
			ttl      = min(max(until - ?2, 0), ttl)
		WHERE mode IN (2, 3)`
	deleteProcessLeases = `DELETE FROM leases WHERE mode IN (0, 1)`
	deleteWaiters       = `DELETE FROM waiters`
)

// Names, for lists and sweeps.
const (
	selectNames = `SELECT name FROM leases WHERE name >= ?1 UNION SELECT name FROM waiters WHERE name >= ?1
		ORDER BY name LIMIT ?2`
)

// Transactions and settings.
const (
	beginRead     = `BEGIN`
	beginWrite    = `BEGIN IMMEDIATE`
	commit        = `COMMIT`
	rollback      = `ROLLBACK`
	syncNormal    = `PRAGMA synchronous = NORMAL`
	syncFull      = `PRAGMA synchronous = FULL`
	useLog        = `PRAGMA journal_mode = WAL`
	countTables   = `SELECT count(*) FROM sqlite_schema`
	applicationOf = `PRAGMA application_id`
	versionOf     = `PRAGMA user_version`
)
