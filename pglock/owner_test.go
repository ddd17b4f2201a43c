package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

func TestIsOwner(t *testing.T) {
	pool := dial(t, pgtest.Start(t).URL())
	check := func(d *pglock.Driver, name string, token uint64) error {
		t.Helper()
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return d.IsOwner(t.Context(), tx, name, token) })
	}
	for _, kind := range []struct {
		name string
		d    *pglock.Driver
	}{{"Rows", newDriver(t, pool)}, {"Sessions", newSession(t, pool)}} {
		t.Run(kind.name, func(t *testing.T) {
			d := kind.d
			first, err := d.Acquire(t.Context(), driver.Request{Name: "a", Owner: "one", TTL: time.Minute, Tokens: 10})
			if err != nil {
				t.Fatal(err)
			}
			token := first.Grant().Token
			for _, tt := range []struct {
				name  string
				token uint64
				want  error
			}{{"a", token, nil}, {"a", token + 9, nil}, {"a", token - 1, driver.ErrLost}, {"a", token + 10, driver.ErrLost}, {"b", token, driver.ErrLost}} {
				if err = check(d, tt.name, tt.token); !errors.Is(err, tt.want) {
					t.Errorf("IsOwner of %q with the first token%+d = %v, want %v", tt.name, int64(tt.token-token), err, tt.want)
				}
			}
			if err = first.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err = check(d, "a", token); !errors.Is(err, driver.ErrLost) {
				t.Errorf("IsOwner after Release = %v, want ErrLost", err)
			}
			next, err := d.Acquire(t.Context(), driver.Request{Name: "a", Owner: "two", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if err = check(d, "a", token); !errors.Is(err, driver.ErrLost) {
				t.Errorf("IsOwner of the hold before = %v, want ErrLost", err)
			}
			if err = check(d, "a", next.Grant().Token); err != nil {
				t.Errorf("IsOwner of the next hold = %v", err)
			}
		})
	}
}

// While the transaction is open, nobody else gets the lock, although its lease has ended.
func TestIsOwnerKeepsTheLock(t *testing.T) {
	pool := dial(t, pgtest.Start(t).URL())
	d, other := newDriver(t, pool), newDriver(t, pool)
	l, err := d.Acquire(t.Context(), driver.Request{Name: "a", Owner: "one", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool, "")
	if err = d.IsOwner(t.Context(), tx, "a", l.Grant().Token); err != nil {
		t.Fatalf("IsOwner = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // longer than the lease
	defer cancel()
	if _, err = other.Acquire(ctx, driver.Request{Name: "a", Owner: "two", TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire while the transaction goes on = %v, want it to wait", err)
	}
	usable(t, tx)
	if err = d.IsOwner(t.Context(), tx, "a", l.Grant().Token); !errors.Is(err, driver.ErrLost) {
		t.Errorf("IsOwner after the end of the lease = %v, want ErrLost", err)
	}
	if err = tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err = other.Acquire(t.Context(), driver.Request{Name: "a", Owner: "two", TTL: time.Minute}); err != nil {
		t.Errorf("Acquire after the transaction = %v", err)
	}
}
