package main

import (
	"context"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
)

// A place is where a store is.
type place struct{ Kind, URL string }

// A store keeps an account, and the locks of those who use it.
type store interface {
	// Locks is the driver for the lock.
	Locks() driver.Driver

	// Read and Write use the account without a guard.
	Read(ctx context.Context) (balance int, err error)
	Write(ctx context.Context, balance int) error

	// Open returns how the holder of the lock writes, through a guard.
	Open(ctx context.Context, g guard, lock *snib.Lock) (writer, error)

	Close() error
}

// A writer writes the balance, or answers [fence.ErrStale].
type writer func(ctx context.Context, balance int) error

// A guard is what checks fencing tokens at the account.
type guard string

const (
	noGuard   guard = "none"
	writeOnly guard = "write-only" // each write is checked

	// With claimed the account is claimed by Open, before it is read, and then each write is checked. Reads could be, too. It is
	// left out, so that the claim is all that this has before writeOnly: who reads as a stale holder is refused when it writes.
	claimed guard = "claimed"
)

func (p place) open(ctx context.Context) (store, error) {
	switch p.Kind {
	case "sqlite":
		return openSQLite(ctx, p.URL)
	case "redis":
		return openRedis(p.URL)
	case "postgres":
		return openPostgres(ctx, p.URL)
	}
	return nil, fmt.Errorf("store %q: want sqlite, redis or postgres", p.Kind)
}
