package pglock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

// A Driver keeps locks as rows of one table. One from [NewSession] takes advisory locks as well.
// It is safe for concurrent use.
type Driver struct {
	pool   *pgxpool.Pool // the user's, who closes it
	conf   config
	sql    statements
	id     string // of this driver, unique over all processes and time
	serial atomic.Uint64

	store    storeInfo
	registry waiterRegistry
	prunes   driverkit.Every
	session  *session // nil for rows

	life *driverkit.Lifecycle // until Close
}

// New returns a driver whose leases are rows of the table snib_locks, or of the one that the
// option [Table] names, in the database of pool. The driver creates the table when it first needs
// it; see [Schema] if it may not create tables.
//
// The pool stays the caller's: the driver uses its connections for one statement at a time, never
// closes it, and must be closed before it. The pool may lead through a pooler in any mode; see
// [Listen] for what that costs.
//
// New does not contact the server. An option that is invalid, or that only [NewSession] uses, is a
// [driver.ErrInvalid].
func New(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	c, err := newConfig(pool, "snib_locks", opts)
	if err == nil && c.sessionOption != "" {
		err = fmt.Errorf("%w option %s: only NewSession uses it", driver.ErrInvalid, c.sessionOption)
	}
	if err != nil {
		return nil, err
	}
	return newDriver(pool, c, liveRow), nil
}

func newDriver(pool *pgxpool.Pool, c config, live string) *Driver {
	d := &Driver{pool: pool, conf: c, life: driverkit.NewLifecycle(), id: strings.ToLower(rand.Text()[:16])}
	d.sql = newStatements(c.table, live)
	d.registry.init()
	return d
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	info := driver.Info{
		Backend:   "postgres",
		Tenure:    driver.TenureLease,
		Fencing:   driver.FencingDurable,
		Fairness:  driver.FairAlways,
		Shared:    true,
		Slots:     true,
		TellsLoss: true,
		MinTTL:    50 * time.Millisecond, // one slow disk flush takes as long
		Assumptions: []string{
			"the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left",
			"the server keeps what it has acknowledged: fsync is on, and a standby is promoted only if it has all commits",
			"nobody else changes or deletes rows of the table",
		},
	}
	if d.session != nil {
		d.session.describe(&info)
	}
	return info
}

// Close implements [driver.Driver]. Leases that were not released lapse at the end of their TTL,
// and those of a session end with the session. The pool stays open.
func (d *Driver) Close() error {
	d.life.End(func() {
		if d.session != nil {
			d.session.close()
		}
	})
	return nil
}

// newNonce returns a unique id for an attempt. It begins with the id of the driver.
func (d *Driver) newNonce() string { return d.id + "-" + strconv.FormatUint(d.serial.Add(1), 36) }

// channel is where the server notifies this driver. It needs no quotes in LISTEN.
func (d *Driver) channel() string { return "snib_" + d.id }

// checkRequest returns an error if the driver can't serve req.
func (d *Driver) checkRequest(req driver.Request) error {
	if req.Detached && d.session != nil {
		return fmt.Errorf("%w request: a lease in a session can't outlive it; take a row instead", driver.ErrInvalid)
	}
	return req.Check()
}

// A config is the result of the options.
type config struct {
	table          pgx.Identifier
	listen         *pgx.ConnConfig // nil: as the pool connects
	key            func(name string) Key
	sessionTimeout time.Duration // how long a session may be silent
	sessionPooler  bool          // there is a pooler in session mode before the server
	sessionOption  string        // an option that only NewSession takes, if one was given
}

func newConfig(pool *pgxpool.Pool, table string, opts []Option) (c config, err error) {
	c = config{table: pgx.Identifier{table}, key: NameKey, sessionTimeout: 15 * time.Second}
	if pool == nil {
		err = fmt.Errorf("%w pool: it is nil", driver.ErrInvalid)
	}
	for _, opt := range opts {
		err = errors.Join(err, opt(&c))
	}
	return c, err
}
