package mysqllock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// A release that the server did not answer in time is completed when the server answers again.
func TestReleaseOnHungServer(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	d, other := newDriver(t, server.DSN()), newDriver(t, server.DSN())
	l := acquire(t, d, request("hung release", "a"))
	server.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
	defer cancel()
	err := l.Release(ctx)
	server.Resume()
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled) {
		t.Errorf("Release on a server that hangs = %v, want ErrUnavailable and nothing of a cancellation", err)
	}
	release(t, acquire(t, other, request("hung release", "b")))
}

// The statements in the documentation grant enough rights. Accounts that may do nothing, or only
// read, can do what the documentation says.
func TestPermissions(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	must(t, admin, "CREATE DATABASE app")
	text, err := mysqllock.Schema("app.snib_locks")
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
		must(t, admin, statement)
	}
	page, err := os.ReadFile("../docs/backends/mysqllock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	for statement := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
		must(t, admin, statement)
	}
	as := func(account string) *mysqllock.Driver {
		return newDriver(t, account+":change-me@tcp("+server.Addr()+")/app")
	}
	d, reader := as("locker"), as("reader")
	release(t, acquire(t, d, request("free", "a")))
	acquire(t, d, request("seen", "a"))
	if st, err := reader.Status(testContext(t), "seen"); err != nil || len(st.Holders) != 1 {
		t.Errorf("Status for a user who may only read = %+v, %v", st, err)
	}
	if _, err := tryAcquire(t, reader, request("mine", "a")); err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire by a user who may only read = %v, want an error that stays", err)
	}
}
