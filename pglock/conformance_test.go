package pglock_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

func TestConformance(t *testing.T) {
	server := pgtest.Start(t)
	drivertest.Run(t, harness(server, false, func(t *testing.T, addr string) driver.Driver {
		return newDriver(t, dial(t, pgtest.URL(addr)))
	}))
}

// TestConformancePooled has PgBouncer in transaction mode between the pools and the server. The
// driver finds out by itself how to send its statements, and listens past the pooler.
func TestConformancePooled(t *testing.T) {
	livetest.Long(t)
	server := pgtest.Start(t)
	pooler := pgtest.Pool(t, server, "transaction")
	h := harness(server, false, func(t *testing.T, addr string) driver.Driver {
		direct, err := pgx.ParseConfig(pgtest.URL(addr))
		if err != nil {
			t.Fatal(err)
		}
		return newDriver(t, dial(t, pooler.URL()), pglock.Listen(direct))
	})
	h.Sever, h.Stall = nil, nil // a shared pooler can't be cut off for one driver alone
	drivertest.Run(t, h)
}

func TestConformanceSession(t *testing.T) {
	server := pgtest.Start(t)
	drivertest.Run(t, harness(server, true, func(t *testing.T, addr string) driver.Driver {
		// A busy machine may keep a session waiting for a second or two.
		return newSession(t, dial(t, pgtest.URL(addr)), pglock.Timeout(5*time.Second))
	}))
}

// harness returns the harness for drivers on a server. Each driver connects through its own
// proxy.
func harness(server *pgtest.Server, session bool, open func(*testing.T, string) driver.Driver) drivertest.Harness {
	paths := livetest.Paths{}
	h := drivertest.Harness{
		Anonymous: session,
		Open: func(t *testing.T) driver.Driver {
			proxy := livetest.NewProxy(t, server.Addr())
			d := open(t, proxy.Addr())
			paths[d] = []*livetest.Proxy{proxy}
			return d
		},
		TTL:    200 * time.Millisecond,
		Secret: pgtest.Password(),
		Sever:  paths.Sever,
		Stall:  paths.Stall,
		Kill: func(t *testing.T, req driver.Request) func() {
			p := hold(t, server.URL(), session, req)
			p.Expect("held")
			return p.Kill
		},
		Restart: func(t *testing.T) {
			// A crash undoes the latest releases, and their leases then last for their TTL. The
			// test case can't wait for that.
			if _, err := dial(t, server.URL()).Exec(t.Context(), "CHECKPOINT"); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			server.Restart()
		},
	}
	if !session {
		h.Empty = make(map[string]func(*testing.T))
		for _, statement := range []string{"DELETE FROM", "TRUNCATE TABLE", "DROP TABLE"} {
			h.Empty[statement] = func(t *testing.T) { must(t, dial(t, server.URL()), statement+" snib_locks") }
		}
	}
	return h
}

// dial returns a pool that is closed at the end of the test.
func dial(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
