package main

import (
	"context"
	"fmt"

	"github.com/sniblock/snib"
)

// A location says where a store is.
type location struct{ Kind, URL string }

// A store keeps an account, and the locks of its clients.
type store interface {
	// Locks returns the driver for the lock.
	Locks() snib.Driver

	// Read and Write use the account without a guard.
	Read(ctx context.Context) (balance int, err error)
	Write(ctx context.Context, balance int) error

	// Open returns the function with which the holder of the lock writes through a guard.
	Open(ctx context.Context, g guard, lock *snib.Lock) (writer, error)

	Close() error
}

// A writer writes the balance, or returns an error that matches [fence.ErrStale].
type writer func(ctx context.Context, balance int) error

// A guard says how fencing tokens are checked at the account.
type guard string

const (
	noGuard   guard = "none"
	writeOnly guard = "write-only" // each write is checked

	// With claimed, Open claims the account before it is read, and then each write is checked.
	// Reads could be checked too. They are not, so that the claim is the only difference from
	// writeOnly: a stale holder that reads is refused when it writes.
	claimed guard = "claimed"
)

func (p location) open(ctx context.Context) (store, error) {
	switch p.Kind {
	case "sqlite":
		return openSQLite(ctx, p.URL)
	case "redis":
		return openRedis(ctx, p.URL)
	case "postgres":
		return openPostgres(ctx, p.URL)
	}
	return nil, fmt.Errorf("store %q: want sqlite, redis or postgres", p.Kind)
}
