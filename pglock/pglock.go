package pglock

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	pool   *pgxpool.Pool // the driver's own
	others chan struct{} // has an element for each statement under way that is not urgent
	conf   config
	sql    statements

	rows     *rows.Driver
	takings  *driverkit.Batcher[*taking]
	freeings *driverkit.Batcher[*freeing]
	modes    queryModes
	verifier verifier

	// locked has the names whose rows were locked at the last heartbeat, at lockedAt. Only poll uses
	// them.
	locked   map[string]bool
	lockedAt time.Time
}

// New returns a driver whose leases are rows of the table snib_locks, or of the one that the
// option [Table] names, in the database of pool. The driver creates the table when it first needs
// it; see [Schema] if it may not create tables.
//
// The driver only connects as the pool does. Its connections are its own, so that queries of the
// program never keep a renewal waiting: as many as the pool may have, but 2 to 8, one of which is
// for renewals and heartbeats alone, and one more that listens. It opens them when it needs them.
// The pool may lead through a pooler in session or transaction mode; see [Listen] for what that
// costs.
//
// New does not contact the server. An option that is invalid, or that only [NewSession] uses, is a
// [driver.ErrInvalid].
func New(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	c, err := newConfig("New", pool, opts)
	if err != nil {
		return nil, err
	}
	own, err := newPool(pool)
	if err != nil {
		return nil, driver.Invalidf("pool: %w", err)
	}
	d := &Driver{pool: own, conf: c, sql: newStatements(c.table)}
	d.others = make(chan struct{}, max(1, own.Config().MaxConns-1))
	d.takings, d.freeings = driverkit.NewBatcher(d.takeAll), driverkit.NewBatcher(d.freeAll)
	d.verifier = verifier{unverified: map[string]bool{}, wake: make(chan struct{}, 1)}
	d.rows = rows.New(rows.Backend{
		Examine: d.examine, Create: d.create, Request: d.request, Remove: d.remove, Release: d.release, Read: d.read,
		Poll: d.poll, ReadPage: d.readPage, Break: d.breakLease, Withdraw: d.withdrawWaiters, SetHolder: d.setHolder,
		Prune: d.prune, Listen: d.listen, PollInterval: pollInterval, TellsBreak: true,
	})
	d.methods = d.rows
	return d, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend:   "postgres",
		Tenure:    driver.TenureLease,
		Fencing:   driver.FencingDurable,
		Fair:      true,
		Shared:    true,
		Slots:     true,
		TellsLoss: true, TellsWanted: true,
		MinTTL: 50 * time.Millisecond, // one slow disk flush takes as long
		Assumptions: []string{
			"the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left",
			"the server keeps what it has acknowledged: fsync is on, and a standby is promoted only if it has all commits",
			"nobody else changes or deletes rows of the table",
		},
	}
}

// Close implements [driver.Driver]. Leases that were not released lapse at the end of their TTL.
// The program's pool stays open.
func (d *Driver) Close() error {
	if d.rows.Close() {
		closePool(d.pool)
	}
	return nil
}

// channel is where the server notifies this driver. It needs no quotes in LISTEN.
func (d *Driver) channel() string { return "snib_" + d.rows.ID }

// A config is the result of the options.
type config struct {
	table          pgx.Identifier
	listen         *pgx.ConnConfig // nil: as the pool connects
	key            func(name string) int64
	sessionTimeout time.Duration // how long a session may be silent
}

// newConfig is for the function by.
func newConfig(by string, pool *pgxpool.Pool, opts []Option) (c config, err error) {
	c = config{table: pgx.Identifier{"snib_locks"}, key: NameKey, sessionTimeout: 15 * time.Second}
	if pool == nil {
		err = driver.Invalidf("pool: it is nil")
	}
	for _, opt := range opts {
		switch {
		case opt.set == nil:
			err = errors.Join(err, driver.Invalidf("option: the zero Option"))
		case opt.only != "" && opt.only != by:
			err = errors.Join(err, driver.Invalidf("option %s: only %s uses it", opt.name, opt.only))
		default:
			err = errors.Join(err, opt.set(&c))
		}
	}
	return c, err
}
