package rowstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// IsOwner checks which tokens of the lock "a" belong to its hold. isOwner asks in a transaction of
// its own.
func IsOwner(t *testing.T, d driver.Driver, isOwner func(name string, token uint64) error) {
	req := rowRequest("a", "one")
	req.Tokens = 10
	first := livetest.Acquire(t, d, req)
	token := first.Grant().Token
	for _, tt := range []struct {
		name  string
		token uint64
		want  error
	}{
		{"a", token, nil}, {"a", token + 9, nil}, {"a", token - 1, driver.ErrLost}, {"a", token + 10, driver.ErrLost},
		{"A", token, driver.ErrLost}, {"b", token, driver.ErrLost},
	} {
		if err := isOwner(tt.name, tt.token); !errors.Is(err, tt.want) {
			t.Errorf("IsOwner of %q with the first token%+d = %v, want %v", tt.name, int64(tt.token-token), err, tt.want)
		}
	}
	livetest.Release(t, first)
	livetest.Want(t, isOwner("a", token), driver.ErrLost, "IsOwner after Release")
	next := livetest.Acquire(t, d, rowRequest("a", "two"))
	livetest.Want(t, isOwner("a", token), driver.ErrLost, "IsOwner of the hold before")
	livetest.Want(t, isOwner("a", next.Grant().Token), nil, "IsOwner of the next hold")
	livetest.Release(t, next)
}

// IsOwnerKeepsTheLock checks a hold of the lock "a" in a transaction. Nobody else gets the lock
// before end has ended the transaction, although the lease ends meanwhile. begin begins a
// transaction, in which isOwner asks.
func IsOwnerKeepsTheLock(t *testing.T, d, other driver.Driver,
	begin func() (isOwner func(token uint64) error, end func() error)) {
	req := rowRequest("a", "one")
	req.TTL = time.Second
	var token uint64
	isOwner, end := begin()
	livetest.Await(t, "IsOwner before the end of the lease", func() error {
		token = livetest.Acquire(t, d, req).Grant().Token
		err := isOwner(token)
		if err != nil {
			_ = end() // else it keeps the lock taken
			isOwner, end = begin()
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // longer than the lease
	defer cancel()
	if _, err := other.Acquire(ctx, rowRequest("a", "two")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire while the transaction goes on = %v, want it to wait", err)
	}
	livetest.Want(t, isOwner(token), driver.ErrLost, "IsOwner after the end of the lease")
	livetest.Must(t, end(), "end the transaction")
	livetest.Acquire(t, other, rowRequest("a", "two"))
}
