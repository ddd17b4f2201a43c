package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// A job is what a child does: it begins the work, and never ends it.
type job struct {
	Store store
	Key   string
}

func TestMain(m *testing.M) {
	os.Exit(livetest.Main(m, func(j job, ctx context.Context) error {
		l, err := j.Store.open(ctx)
		if err != nil {
			return err
		}
		defer l.close()
		_, err = l.once(ctx, j.Key, func(ctx context.Context, tx *sql.Tx) error {
			err := pay(ctx, tx)
			livetest.Say("working")
			<-ctx.Done()
			return err
		})
		return err
	}))
}

// pay is the work: it is visible in the database how often it was done.
func pay(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1")
	return err
}

// eachStore runs a test on each store, with an account whose balance is 0.
func eachStore(t *testing.T, test func(t *testing.T, s store)) {
	for kind, url := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return t.TempDir() },
		"postgres": func(t *testing.T) string { return pgtest.Start(t).URL() },
		"mysql":    func(t *testing.T) string { return mysqltest.Start(t).DSN() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := store{Kind: kind, URL: url(t)}
			l := open(t, s)
			for _, text := range []string{"CREATE TABLE account (balance integer NOT NULL)", "INSERT INTO account VALUES (0)"} {
				if _, err := l.guard.DB.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			test(t, s)
			var balance int
			if err := l.guard.DB.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&balance); err != nil || balance != 1 {
				t.Errorf("the work was done %d times (%v), want once", balance, err)
			}
		})
	}
}

func open(t *testing.T, s store) *ledger {
	t.Helper()
	l, err := s.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// Hosts that come at the same time, and again later, do the work once.
func TestOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		var hosts sync.WaitGroup
		for range 4 {
			l := open(t, s)
			hosts.Go(func() {
				for range 3 {
					if _, err := l.once(t.Context(), "report/1", pay); err != nil {
						t.Errorf("once: %v", err)
					}
				}
			})
		}
		hosts.Wait()
		if did, err := open(t, s).once(t.Context(), "report/1", pay); did || err != nil {
			t.Errorf("once more = %v, %v; want false without an error", did, err)
		}
	})
}

// Work that failed leaves nothing behind, and is done by the next call.
func TestAfterFailure(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		l, wrong := open(t, s), errors.New("no paper")
		did, err := l.once(t.Context(), "report/1", func(ctx context.Context, tx *sql.Tx) error { return errors.Join(pay(ctx, tx), wrong) })
		if did || !errors.Is(err, wrong) {
			t.Errorf("once = %v, %v; want %v", did, err, wrong)
		}
		if did, err = l.once(t.Context(), "report/1", pay); !did || err != nil {
			t.Errorf("once after a failure = %v, %v; want true", did, err)
		}
	})
}

// The work of a host that was killed in the middle of it is done by another one.
func TestAfterKill(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		child := livetest.StartChild(t, job{s, "report/1"})
		child.Expect("working")
		l := open(t, s)
		if did, err := l.once(t.Context(), "report/1", pay); did || err != nil {
			t.Errorf("once beside a host that works = %v, %v; want false without an error", did, err)
		}
		child.Kill()
		livetest.Await(t, "host that does the work after the lease of the dead one", func() error {
			did, err := l.once(t.Context(), "report/1", pay)
			if err == nil && !did {
				err = errors.New("it was not done")
			}
			return err
		})
	})
}

// A host that lost its lock before its transaction began does not do the work.
func TestLate(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		late, next := open(t, s), open(t, s)
		lock, err := late.locker.Acquire(t.Context(), "report/1")
		if err != nil {
			t.Fatal(err)
		}
		handle, err := late.guard.Open(t.Context(), lock)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.locker.Break(t.Context(), "report/1", lock.ID()); err != nil {
			t.Fatal(err)
		}
		if did, err := next.once(t.Context(), "report/1", pay); !did || err != nil {
			t.Errorf("once after the loss = %v, %v; want true", did, err)
		}
		err = handle.Tx(context.WithoutCancel(t.Context()), nil, func(tx *sql.Tx) error { return pay(t.Context(), tx) })
		if !errors.Is(err, fence.ErrStale) {
			t.Errorf("a late transaction = %v, want %v", err, fence.ErrStale)
		}
	})
}

func TestRefuses(t *testing.T) {
	if _, err := (store{Kind: "tape"}).open(t.Context()); err == nil || !strings.Contains(err.Error(), "want sqlite") {
		t.Errorf("open = %v", err)
	}
}
