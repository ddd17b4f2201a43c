package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

var _ driver.Driver = (*Driver)(nil)

// An inspector has the methods Status, List, Break and Withdraw.
type inspector = driver.Inspector

// A Driver keeps locks as rows of one table. It is safe for concurrent use.
type Driver struct {
	inspector
	db   *sql.DB // the user's, who closes it
	conf config
	sql  statements

	rows         *rows.Driver
	noAutocommit atomic.Bool // the settings of the pool turn it off
	rowMutexes   rowMutexes
	processes    processes

	// acquiring is for all changes that are not urgent.
	acquiring, releasing, renewing semaphore

	spare      chan *sql.Conn // capacity 1: the connection that is kept for urgent statements
	lacksSpare atomic.Bool    // the next connection becomes the spare
	unanswered atomic.Bool    // the server has not answered the last statement, or connection, in time
}

// New returns a driver whose leases are rows of the table snib_locks, or of the one that the
// option [Table] names, in the database of db. The driver creates the table when it first needs
// it; see [Schema] if it may not create tables.
//
// The db stays the caller's: the driver uses its connections for one statement at a time, at most
// 8 at once for changes, 8 for releases, 8 for renewals, one for heartbeats, one more while a
// caller waits, and one for each call of Status, List or Prune. It never closes db, and must be
// closed before it. From the first request until Close it keeps one connection, so that queries of
// the program never keep a renewal or a release waiting. So db must be allowed two connections
// (SetMaxOpenConns); with two, there is none left for watching, and the driver polls ten times a
// second instead. A request that gets no connection because the program uses all of them is a
// [driver.ErrFull], and waits for one as it waits for a holder. If the program waits for a lock
// while it uses all connections that db may open, it waits for itself.
//
// The driver closes a connection that the program has returned to db with an open transaction, or
// without autocommit: a lock that is taken there could be rolled back.
//
// New does not contact the server. An invalid option, or a db with one connection, is a
// [driver.ErrInvalid].
func New(db *sql.DB, opts ...Option) (*Driver, error) {
	c, err := newConfig(db, opts)
	if err != nil {
		return nil, err
	}
	d := &Driver{db: db, conf: c, sql: newStatements(c.table), spare: make(chan *sql.Conn, 1)}
	d.lacksSpare.Store(true)
	d.processes.init()
	d.rowMutexes.init()
	d.acquiring, d.releasing, d.renewing = make(semaphore, maxConns), make(semaphore, maxConns), make(semaphore, maxConns)
	backend := rows.Backend{
		Examine: d.examine, Create: d.create, Request: d.request, Remove: d.removeEntry, Release: d.release,
		Read: d.readStates, Poll: d.poll, ReadPage: d.readPage, Break: d.breakLease, Withdraw: d.withdrawWaiters,
		SetHolder: d.setHolder, Prune: d.prune, Listen: d.watch,
		PollInterval: pollInterval,
	}
	d.rows = rows.New(backend)
	d.inspector = d.rows
	return d, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend:  "mysql",
		Tenure:   driver.TenureLease,
		Fencing:  driver.FencingDurable,
		Fairness: driver.FairAlways,
		Shared:   true,
		Slots:    true, TellsWanted: true,
		MinTTL: 50 * time.Millisecond, // one slow disk flush takes as long
		Assumptions: []string{
			"the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left",
			"the server keeps what it has acknowledged: innodb_flush_log_at_trx_commit is 1, and a replica is promoted " +
				"only if it has all commits",
			"nobody else changes or deletes rows of the table",
		},
	}
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.rows.Acquire(ctx, req)
}

// Close implements [driver.Driver]. Leases that were not released lapse at the end of their TTL.
// The db stays open.
func (d *Driver) Close() error {
	if d.rows.Close() {
		d.processes.deleteRow(d)
		d.returnSpare()
	}
	return nil
}

// A config is the result of the options.
type config struct {
	table string // quoted
}

// defaultTable is the name of the table if the option Table gives no other.
const defaultTable = "snib_locks"

func newConfig(db *sql.DB, opts []Option) (c config, err error) {
	c.table = "`" + defaultTable + "`"
	if db == nil {
		err = driver.Invalidf("db: it is nil")
	} else if n := db.Stats().MaxOpenConnections; n > 0 && n < leastConnections {
		err = driver.Invalidf("db: it may open only %d connection (SetMaxOpenConns), and the driver keeps one for renewals; allow 3 or more", n)
	}
	for _, opt := range opts {
		err = errors.Join(err, opt.apply(&c))
	}
	return c, err
}
