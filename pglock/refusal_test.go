package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestRefusals checks what the errors of acquisitions say while the
// server refuses the password, hangs, and is dead. It has no grace period.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const secret = "a secret of the program"
	server := pgtest.Start(t, "max_connections=400")
	pool := dial(t, server.URL())
	must(t, pool, "CREATE ROLE program SUPERUSER LOGIN PASSWORD '"+secret+"'")
	must(t, pool, `DO $$ BEGIN EXECUTE format('COPY (VALUES (''host all program all password''), (''host all all all trust'')) TO %L',
		current_setting('hba_file')); END $$`)
	must(t, pool, "SELECT pg_reload_conf()")
	setPassword := func(t *testing.T, password string) {
		must(t, pool, "ALTER ROLE program PASSWORD '"+password+"'")
		must(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'program'")
	}
	kinds := map[string]func(*testing.T) driver.Driver{}
	for _, kind := range tenures {
		kinds[kind.name] = func(t *testing.T) driver.Driver {
			return kind.open(t, dialWith(t, server.URL(), func(c *pgxpool.Config) {
				c.ConnConfig.User, c.ConnConfig.Password = "program", secret
			}))
		}
	}
	jobtest.RefusalTest{
		Open: kinds, Secret: secret,
		Outages: []jobtest.Outage{
			{Name: "Password", Denied: true, Says: "password authentication failed", Begin: func(t *testing.T) func() {
				setPassword(t, "another")
				return func() { setPassword(t, secret) }
			}},
			jobtest.Hung("no answer", server),
			jobtest.Dead(server),
		},
	}.Run(t)
}
