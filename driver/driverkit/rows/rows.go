// Package rows has the common parts of drivers for SQL databases that keep a lock in one row of
// a table: the attempts that wait, the poller that watches over them, and the leases. It is for
// authors of drivers, as package driverkit is.
//
// A row has a queue, so the waiters of all processes are served in the order of arrival. An
// [Attempt] that is queued sleeps until a notification of the database or the poller wakes it.
// The poller also tells the database that the waiters live, and retries removals that failed.
//
// A driver makes a [Driver] from a [Backend], which has its statements, its notifications and its
// connections. The backend also decides which request is granted: in one statement, or in Go by
// means of [State].
package rows

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// HeartbeatInterval is how often a process tells the store that its waiters live, and polls
	// the rows that they wait for.
	HeartbeatInterval = time.Second

	// HeartbeatTimeout is how long a waiter keeps its place without a heartbeat. For that long a
	// dead waiter can delay the waiters behind it.
	HeartbeatTimeout = 3 * time.Second

	// idleTimeout is how long the connection for notifications is kept when it is no longer
	// needed.
	idleTimeout = 5 * time.Second

	// yieldTime is how long the listener stays away after a request of this process was refused for
	// want of a connection. Polls over an open connection do not notice how long the server is full.
	yieldTime = 3 * time.Second

	// listenDelay is how old a lease must be before a connection is opened only to learn that
	// the lease was broken. Most leases have ended by then.
	listenDelay = 200 * time.Millisecond

	// maxCleanups is from how many pending cleanups on another lease that nobody got is left to its
	// TTL. They fill the memory, and go to the store one by one when it is back.
	maxCleanups = 10_000
)

// A Backend has the functions of a driver that depend on its database. They are called
// concurrently, and may call the methods of this package. Their errors match
// [driver.ErrUnavailable] if a retry may succeed.
type Backend struct {
	// Examine checks that the table is usable. It creates the table if there is none, and returns
	// [ErrEmpty] if the row that says its version is missing.
	Examine func(context.Context) error

	// Create creates the table and the row with its version, if they are missing.
	Create func(context.Context) error

	// Request sends the request of an attempt once. If the store grants it, Request returns what
	// [Attempt.Grant] returns. If the store has queued the attempt, Request calls
	// [Attempt.Wait] and returns [driver.ErrHeld]. It calls [Attempt.MarkSent] before the first
	// statement that may leave a trace in the store. If an earlier request of the attempt was
	// executed, and its answer was lost, the attempt gets the entry that [State.HolderOf] finds, for
	// one TTL from now.
	Request func(context.Context, *Attempt) (*Lease, error)

	// Remove removes what the attempt with this nonce has left in the row of the name: a waiter,
	// or a lease that was never returned to a caller.
	Remove func(ctx context.Context, name, nonce string) error

	// Release ends the lease in its row, or keeps it there until Request.MinHold has passed. It
	// reports whether the row had the lease.
	Release func(context.Context, *Lease) (freed bool, err error)

	// SetHolder changes Host, PID, Label and Kind of the lease in its row to those of h. It reports
	// whether the row had the lease.
	SetHolder func(ctx context.Context, l *Lease, h Entry) (found bool, err error)

	// Read reads rows. Names without a row are missing from the result.
	Read func(ctx context.Context, names []string) (map[string]*State, error)

	// Poll is Read for the rows that attempts wait for. If a heartbeat is due, it also tells the
	// store that the waiters with these nonces live. If the store can't do that for some rows,
	// the Err of their states matches ErrUnavailable. One goroutine at a time calls Poll.
	Poll func(ctx context.Context, names, nonces []string, heartbeat bool) (map[string]*State, error)

	// ReadPage reads, in the order of names, the next rows that may have holders or waiters. The
	// names begin with prefix and are greater than after. At the end it returns no rows.
	ReadPage func(ctx context.Context, prefix, after string) ([]*State, error)

	// Break frees the hold with an id, or returns [driver.ErrLost].
	Break func(ctx context.Context, name, id string) error

	// Withdraw removes the waiters with an id from the row of the name, if there are any.
	Withdraw func(ctx context.Context, name, id string) error

	// Prune forgets up to 1,000 locks that were unused for the given time.
	Prune func(ctx context.Context, unused time.Duration) error

	// Listen connects, calls [Driver.Connected], and then handles notifications until
	// [Driver.StopListening] returns true or the connection fails. If it can't ever connect, it
	// returns an error that matches [ErrCantListen].
	Listen func() error

	// PollInterval is the least time between two polls, and the time between two polls while no
	// notifications arrive.
	PollInterval time.Duration

	// TellsBreak means that holders are notified when their leases are broken.
	TellsBreak bool
}

// Methods are those of a [Driver] that the driver of a store has as they are: it embeds them.
type Methods interface {
	driver.Inspector
	Acquire(ctx context.Context, req driver.Request) (driver.Lease, error)
	Lease(name, id string, ttl time.Duration) driver.Lease
	Prune(ctx context.Context, unused time.Duration) error
}

// A Driver implements the methods of [driver.Driver] that are the same for all stores, and Prune.
// It is safe for concurrent use.
type Driver struct {
	ID   string               // of this driver, unique over all processes and time
	Life *driverkit.Lifecycle // until Close

	backend  Backend
	prepared atomic.Bool // the table exists and is usable
	serial   atomic.Uint64
	registry registry
	pruning  atomic.Bool
	lastFull atomic.Pointer[time.Time] // when a request last met a full server, or nil; see MustYield
}

// New returns a driver.
func New(backend Backend) *Driver {
	d := &Driver{ID: strings.ToLower(rand.Text()[:16]), Life: driverkit.NewLifecycle(), backend: backend}
	d.registry.init(d)
	return d
}

// Close ends the driver. Leases that were not released lapse at the end of their TTL. Close reports
// whether this was the first call.
func (d *Driver) Close() (first bool) { return d.Life.End(nil) }

// newNonce returns a unique id for an attempt. It begins with the id of the driver.
func (d *Driver) newNonce() string { return d.ID + "-" + strconv.FormatUint(d.serial.Add(1), 36) }

// ErrEmpty means that the table does not say its version: somebody has deleted its rows.
const ErrEmpty driver.Sentinel = "the table is empty"

// Prepare makes sure that the table exists and is usable. It remembers a success.
func (d *Driver) Prepare(ctx context.Context) error {
	if d.prepared.Load() {
		return nil
	}
	err := d.backend.Examine(ctx)
	if errors.Is(err, ErrEmpty) {
		if err = d.backend.Create(ctx); err == nil {
			err = d.backend.Examine(ctx)
		}
	}
	d.prepared.Store(err == nil)
	return err
}

// errNoAnswer is the cause with which the timeout of a request in the background ends it.
var errNoAnswer = fmt.Errorf("%w: it does not answer", driver.ErrUnavailable)
