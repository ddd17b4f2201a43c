package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

var _ driver.Driver = (*Driver)(nil)

// The alias keeps the embedded field unexported.
type methods = rows.Methods

// A Driver keeps locks as rows of one table, and has the methods of [rows.Methods]. It is safe for
// concurrent use.
type Driver struct {
	methods
	db    *sql.DB // the driver's own
	table string  // quoted
	sql   statements

	rows       *rows.Driver
	rowMutexes rowMutexes
	processes  processes

	// Each admits maxConns statements. acquiring is for all but releases, renewals and polls.
	acquiring, releasing, renewing semaphore
}

// New returns a driver whose leases are rows of the table snib_locks, or of the one that the
// option [Table] names, in the database of conf. The driver creates the table when it first needs
// it; see [Schema] if it may not create tables.
//
// The driver only connects as conf says. Its connections are its own, so that queries of the
// program never keep a renewal waiting: at most 8 for requests, 8 for releases, 8 for renewals, one
// for heartbeats, and one more while a caller waits. It opens them when it needs them, and closes
// those that were idle for half an hour.
//
// New does not contact the server. An invalid option or conf is a [driver.ErrInvalid].
func New(conf *mysql.Config, opts ...Option) (*Driver, error) {
	table, err := defaultTable, error(nil)
	for _, opt := range opts {
		quoted, invalid := quote(opt.table)
		table, err = quoted, errors.Join(err, invalid)
	}
	if conf == nil {
		err = driver.Invalidf("config: it is nil")
	}
	if err != nil {
		return nil, err
	}
	db, err := newPool(conf)
	if err != nil {
		return nil, err
	}
	return newDriver(db, table), nil
}

func newDriver(db *sql.DB, table string) *Driver {
	d := &Driver{
		db: db, table: table, sql: newStatements(table), rowMutexes: rowMutexes{all: map[string]*rowMutex{}},
		processes: processes{others: map[string]processRow{}, heartbeatLock: make(semaphore, 1)},
		acquiring: make(semaphore, maxConns), releasing: make(semaphore, maxConns), renewing: make(semaphore, maxConns),
	}
	backend := rows.Backend{
		Examine: d.examine, Create: d.create, Request: d.request, Remove: d.removeEntry, Release: d.release,
		Read: d.readStates, Poll: d.poll, ReadPage: d.readPage, Break: d.breakLease, Withdraw: d.withdrawWaiters,
		SetHolder: d.setHolder, Prune: d.prune, Listen: d.watch,
		PollInterval: pollInterval,
	}
	d.rows = rows.New(backend)
	d.methods = d.rows
	return d
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend: "mysql",
		Tenure:  driver.TenureLease,
		Fencing: driver.FencingDurable,
		Fair:    true,
		Shared:  true,
		Slots:   true, TellsWanted: true,
		MinTTL: 50 * time.Millisecond, // one slow disk flush takes as long
		Assumptions: []string{
			"the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left",
			"the server keeps what it has acknowledged: innodb_flush_log_at_trx_commit is 1, and a replica is promoted " +
				"only if it has all commits",
			"nobody else changes or deletes rows of the table",
		},
	}
}

// Close implements [driver.Driver]. Leases that were not released lapse at the end of their TTL.
func (d *Driver) Close() error {
	if !d.rows.Close() {
		return nil
	}
	d.releasing.drain(driverkit.CleanupTimeout) // a release may be between two statements
	if !d.processes.lastHeartbeat.IsZero() {
		ctx, cancel := context.WithTimeout(context.Background(), driverkit.CleanupTimeout)
		defer cancel()
		// If this fails, the process soon counts as dead.
		_, _ = d.exec(ctx, forNames(d.sql.DeleteRows, 1), []byte(processPrefix+d.rows.ID))
	}
	_ = d.db.Close() // a connection that is dead has an error
	return nil
}
