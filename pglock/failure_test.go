package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/outagetest"
)

// TestFailures proves the cells of PostgreSQL in docs/failures.md.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "postgres")
	server := pgtest.Start(livetest.WithEnv(t, shim.Env()...), "wal_level=replica",
		"max_connections=60", "superuser_reserved_connections=2")
	admin := dial(t, server.URL())
	const secret = "a secret of the program"
	must(t, admin, "CREATE ROLE program LOGIN PASSWORD '"+secret+"'; GRANT CREATE ON SCHEMA public TO program")
	must(t, admin, `DO $$ BEGIN EXECUTE format('COPY (VALUES (''host all program all password''),
		(''host all all all trust''), (''host replication all all trust'')) TO %L',
		current_setting('hba_file')); END $$`)
	must(t, admin, "SELECT pg_reload_conf()")
	dialAt := func(t *testing.T, url string) *pgxpool.Pool {
		return dialWith(t, url, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = "program", secret })
	}
	set := func(setting string) {
		must(t, admin, "ALTER SYSTEM "+setting)
		must(t, admin, "SELECT pg_reload_conf()")
	}
	setPassword := func(password string) {
		admin := dial(t, server.URL()) // an earlier case may have ended the connections of the other pool
		must(t, admin, "ALTER ROLE program PASSWORD '"+password+"'")
		must(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'program'")
	}
	password := outagetest.Failure{Name: "Password", Denied: true, Says: "password authentication failed", Begin: func(*testing.T) func() {
		setPassword("another")
		return func() { setPassword(secret) }
	}}
	hung, restart := outagetest.Hung("no answer", server), outagetest.Restarted(server)
	openRows := func(t *testing.T) driver.Driver { return newDriver(t, dialAt(t, server.URL())) }
	openSession := func(t *testing.T) driver.Driver { return newSession(t, dialAt(t, server.URL())) }
	outagetest.Store{Open: openRows, Secret: secret}.Failures(t, password, hung, restart,
		outagetest.Failure{Name: "FullPool", Renews: true, Next: driver.ErrFull,
			Begin: func(*testing.T) func() {
				var all []*pgxpool.Conn
				filler := dialWith(t, server.URL(), func(c *pgxpool.Config) {
					c.ConnConfig.User, c.ConnConfig.Password, c.MaxConns = "program", secret, 60
				})
				for {
					conn, err := filler.Acquire(t.Context())
					if err != nil {
						break
					}
					all = append(all, conn)
				}
				return func() {
					for _, conn := range all {
						conn.Hijack().Close(t.Context())
					}
				}
			}},
		outagetest.Failure{Name: "ReadOnly", Begin: func(*testing.T) func() {
			set("SET default_transaction_read_only = on")
			return func() {
				must(t, admin, "SET default_transaction_read_only = off") // in its own session
				set("RESET default_transaction_read_only")
			}
		}},
		outagetest.Failure{Name: "FullDisk", Begin: func(*testing.T) func() {
			shim.FillDisk(true)
			return func() { shim.FillDisk(false) }
		}},
	)
	t.Run("Session", func(t *testing.T) { // it ends with its connection, so a hold of it is no case
		outagetest.Store{Open: openSession, Secret: secret}.Errors(t, password, hung, restart)
	})
	proxy := livetest.NewProxy(t, server.Addr())
	openPrimary := func(t *testing.T) driver.Driver { return newDriver(t, dialAt(t, pgtest.URL(proxy.Addr()))) }
	outagetest.Store{Open: openPrimary}.Failures(t,
		outagetest.Failure{Name: "Failover", Begin: func(t *testing.T) func() {
			standby := pgtest.Standby(t, server.Addr())
			must(t, dial(t, server.URL()), "SELECT pg_switch_wal()")
			server.Kill()
			return func() {
				must(t, dial(t, standby.URL()), "SELECT pg_promote()")
				proxy.Redirect(standby.Addr())
			}
		}},
	)
}
