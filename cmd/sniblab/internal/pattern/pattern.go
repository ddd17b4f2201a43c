// Package pattern contains ways to lock: broken ones, as programs and articles have them, and
// right ones. Each is written as a user of the store's client would write it. "sniblab demo" shows
// those on one Redis, and "sniblab run" judges most of the broken ones.
package pattern

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Name names a pattern. [Open] lists them.
type Name string

// A Spec says what a client is to open.
type Spec struct {
	Pattern Name
	URLs    []string      // of the servers, without passwords
	Client  string        // what the client calls itself in the store, such as "A"
	TTL     time.Duration // of the lock, if the pattern has one

	// Zero and Ahead are for patterns that write the time of clients into the lock. They write
	// seconds since Zero, by a clock that is ahead of this machine's.
	Zero  time.Time
	Ahead time.Duration

	// Lock is the name of the lock, if it is not LockName. Only patterns with ZooKeeper and etcd
	// look at it: other stores can be emptied.
	Lock string
}

// clock returns the seconds since Zero by the client's clock.
func (s Spec) clock() float64 { return (time.Since(s.Zero) + s.Ahead).Seconds() }

// The names of the lock and of the data that it protects, in each store.
const (
	LockName  = "order" // the lock
	StockName = "stock" // how many of an article are left; each job sells one
)

// A Client is a client that locks by one pattern, and works on the stock.
type Client struct {
	// Try tries once to get the lock.
	Try func(context.Context) (held bool, err error)

	// Wait waits for the lock until ctx is done. If it is nil, one calls Try again and again.
	Wait func(context.Context) error

	// Held returns an error if the client knows that it has lost the lock. It is nil if the
	// pattern can't know that.
	Held func() error

	// Token returns the fencing token of the last hold. It is nil if the pattern has none.
	Token func() uint64

	// Release frees the lock as the pattern does, whoever holds it by now.
	Release func(context.Context) error

	// Read and Write are the two steps of the work in the critical section: nothing but
	// the lock protects a stock that was read from being written by somebody else.
	Read  func(context.Context) (stock int, err error)
	Write func(ctx context.Context, stock int) error

	// Close closes the connections.
	Close func()
}

// ErrRefused is matched by the errors of Read and Write if the work must be thrown away.
const ErrRefused driver.Sentinel = "refused"

// A Tracer follows what a client on one Redis does.
type Tracer interface {
	// Before is called with each command before it is sent, and After with its answer.
	// The client goes on when they return.
	Before(command string)
	After(command, answer string)

	// Renewed is called when a lease was renewed in the background, and Lost when a hold ended
	// before its release.
	Renewed()
	Lost(why string)
}

// Open connects a client.
func Open(ctx context.Context, s Spec, t Tracer) (*Client, error) {
	open := map[Name]func(context.Context, Spec, Tracer) (*Client, error){
		SetnxExpire: onRedis(setnxExpire),
		GetSet:      onRedis(getSet),
		Del:         onRedis(withDel),
		GetDel:      onRedis(getDel),
		Getset:      onRedis(getset),
		SetNX:       onRedis(setNX),
		NoExpiry:    onRedis(noExpiry),
		Renewed:     onRedis(renewed),
		Counted:     onRedis(counted),
		Snib:        onRedis(snibLock(false)),
		FencedSnib:  onRedis(snibLock(true)),

		InsertRow:  onPostgres(insertRow),
		Autocommit: onPostgres(autocommit),
		Advisory:   onPostgres(advisory),

		TimelessRedlock: redlockOf(false),
		HastyRedlock:    redlockOf(true),

		Unwatched:   unwatched,
		PutIfAbsent: putIfAbsent,
	}[s.Pattern]
	if open == nil {
		return nil, fmt.Errorf("unknown pattern %q", s.Pattern)
	}
	return open(ctx, s, t)
}
