package mysqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestIsOwner(t *testing.T) {
	t.Parallel()
	db := dial(t, mysqltest.Start(t).DSN())
	d := newDriver(t, db)
	check := func(name string, token uint64) error {
		t.Helper()
		tx := begin(t, db)
		defer tx.Rollback()
		return d.IsOwner(testContext(t), tx, name, token)
	}
	req := request("a", "one")
	req.Tokens = 10
	first := acquire(t, d, req)
	token := first.Grant().Token
	for _, tt := range []struct {
		name  string
		token uint64
		want  error
	}{{"a", token, nil}, {"a", token + 9, nil}, {"a", token - 1, driver.ErrLost}, {"a", token + 10, driver.ErrLost}, {"A", token, driver.ErrLost}} {
		if err := check(tt.name, tt.token); !errors.Is(err, tt.want) {
			t.Errorf("IsOwner of %q with the first token%+d = %v, want %v", tt.name, int64(tt.token-token), err, tt.want)
		}
	}
	release(t, first)
	if err := check("a", token); !errors.Is(err, driver.ErrLost) {
		t.Errorf("IsOwner after Release = %v, want ErrLost", err)
	}
	next := acquire(t, d, request("a", "two"))
	if err := check("a", token); !errors.Is(err, driver.ErrLost) {
		t.Errorf("IsOwner of the hold before = %v, want ErrLost", err)
	}
	if err := check("a", next.Grant().Token); err != nil {
		t.Errorf("IsOwner of the next hold = %v", err)
	}
}

// While the transaction is open, nobody else gets the lock, although its lease has ended.
func TestIsOwnerKeepsTheLock(t *testing.T) {
	t.Parallel()
	db := dial(t, mysqltest.Start(t).DSN())
	d, other := newDriver(t, db), newDriver(t, db)
	req := request("a", "one")
	req.TTL = time.Second
	l := acquire(t, d, req)
	tx := begin(t, db)
	if err := d.IsOwner(testContext(t), tx, "a", l.Grant().Token); err != nil {
		t.Fatalf("IsOwner = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // longer than the lease
	defer cancel()
	if _, err := other.Acquire(ctx, request("a", "two")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire while the transaction goes on = %v, want it to wait", err)
	}
	if err := d.IsOwner(testContext(t), tx, "a", l.Grant().Token); !errors.Is(err, driver.ErrLost) {
		t.Errorf("IsOwner after the end of the lease = %v, want ErrLost", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, request("a", "two"))
}
