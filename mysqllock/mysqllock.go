package mysqllock

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

// A Driver keeps locks as rows of one table. One from [NewSession] takes locks with GET_LOCK as
// well. It is safe for concurrent use.
type Driver struct {
	db     *sql.DB // the user's, who closes it
	conf   config
	sql    statements
	id     string // of this driver, unique over all processes and time
	serial atomic.Uint64

	store                          storeInfo
	rowMutexes                     rowMutexes
	renewing, releasing, acquiring semaphore

	registry waiterRegistry
	prunes   driverkit.Every
	session  *session // nil for rows

	life *driverkit.Lifecycle // until Close
}

// New returns a driver whose leases are rows of the table snib_locks, or of the one that the
// option [Table] names, in the database of db. The driver creates the table when it first needs
// it; see [Schema] if it may not create tables.
//
// The db stays the caller's: the driver uses its connections for one statement at a time, at most
// as many at once as [Connections] says, and one more while a caller waits. It never closes db,
// and must be closed before it. If db may open only one connection (SetMaxOpenConns), there is
// none left for watching, and the driver polls ten times a second instead. If the program waits
// for a lock while it uses all connections that db may open, it waits for itself.
//
// New does not contact the server. An option that is invalid, or that only [NewSession] uses, is a
// [driver.ErrInvalid].
func New(db *sql.DB, opts ...Option) (*Driver, error) {
	c, err := newConfig(db, "snib_locks", opts)
	if err == nil && c.sessionOption != "" {
		err = fmt.Errorf("%w option %s: only NewSession uses it", driver.ErrInvalid, c.sessionOption)
	}
	if err != nil {
		return nil, err
	}
	return newDriver(db, c), nil
}

func newDriver(db *sql.DB, c config) *Driver {
	d := &Driver{db: db, conf: c, life: driverkit.NewLifecycle(), id: strings.ToLower(rand.Text()[:16])}
	d.sql = newStatements(c.table)
	d.registry.init()
	d.rowMutexes.init()
	n := d.conf.connections
	d.acquiring, d.releasing, d.renewing = make(semaphore, n), make(semaphore, n), make(semaphore, n)
	return d
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	info := driver.Info{
		Backend:  "mysql",
		Tenure:   driver.TenureLease,
		Fencing:  driver.FencingDurable,
		Fairness: driver.FairAlways,
		Shared:   true,
		Slots:    true,
		MinTTL:   50 * time.Millisecond, // one slow disk flush takes as long
		Assumptions: []string{
			"the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left",
			"the server keeps what it has acknowledged: innodb_flush_log_at_trx_commit is 1, and a replica is promoted only if it has all commits",
			"nobody else changes or deletes rows of the table",
		},
	}
	if d.session != nil {
		d.session.describe(&info)
	}
	return info
}

// Close implements [driver.Driver]. Leases that were not released lapse at the end of their TTL,
// and those of a session end with the session. The db stays open.
func (d *Driver) Close() error {
	first := d.life.End(func() {
		if d.session != nil {
			d.session.close()
		}
	})
	if first {
		d.registry.deleteProcessRow(d)
		go d.store.close() // it waits for the user's work on the connections
	}
	return nil
}

// newNonce returns a unique id for an attempt. It begins with the id of the driver.
func (d *Driver) newNonce() string { return d.id + "-" + strconv.FormatUint(d.serial.Add(1), 36) }

// checkRequest returns an error if the driver can't serve req.
func (d *Driver) checkRequest(req driver.Request) error {
	switch {
	case d.session == nil: // rows can serve every request
	case req.Shared || req.Slots > 0:
		return fmt.Errorf("%w request: GET_LOCK has neither a read side nor slots; take a row instead", driver.ErrInvalid)
	case req.Detached:
		return fmt.Errorf("%w request: a lease in a session can't outlive it; take a row instead", driver.ErrInvalid)
	}
	return req.Check()
}

// A config is the result of the options.
type config struct {
	table               string // quoted
	database, tableName string // not quoted; an empty database is that of the connection
	key                 func(name string) string
	sessionTimeout      time.Duration // how long a session may be silent
	connections         int           // for each purpose
	sessionOption       string        // an option that only NewSession takes, if one was given
}

func newConfig(db *sql.DB, table string, opts []Option) (c config, err error) {
	c = config{table: "`" + table + "`", tableName: table, key: NameKey, sessionTimeout: 15 * time.Second, connections: 8}
	if db == nil {
		err = fmt.Errorf("%w db: it is nil", driver.ErrInvalid)
	}
	for _, opt := range opts {
		err = errors.Join(err, opt(&c))
	}
	return c, err
}
