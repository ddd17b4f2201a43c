//go:build unix

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestPostgresScripts runs the common scripts on PostgreSQL, each in a database of its own, and the
// script about it.
func TestPostgresScripts(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	pool, err := pgxpool.New(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, name := range commonScripts {
		if _, err := pool.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(kindScripts, name) {
				livetest.Long(t)
			}
			runOnStore(t, []string{name}, strings.Replace(s.URL(), "/postgres?", "/"+name+"?", 1))
		})
	}
	t.Run("postgres", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "postgres", "postgres.txtar")}},
			"SNIB_URL="+s.URL(), "ADDR="+s.Addr(), "PASSWORD="+pgtest.Password())
	})
}

// TestPostgresDoctorTable examines a table that another role created first, with a trigger on it.
func TestPostgresDoctorTable(t *testing.T) {
	t.Parallel()
	newStore(t)
	server := pgtest.Start(t)
	setenv(t, "SNIB_URL", server.URL())
	if out, code := snib(t, "doctor"); code != 0 || !strings.Contains(out, "not made yet") {
		t.Errorf("doctor before there is a table = %d\n%s", code, out)
	}
	mustSnib(t, "run", "a", "--", "true")
	if out, code := snib(t, "doctor"); code != 0 || !strings.Contains(out, "public.snib_locks, owned by postgres") {
		t.Errorf("doctor with a table of ours = %d\n%s", code, out)
	}
	table := mustSnib(t, "schema", "postgres")
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	change := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	change("DROP TABLE snib_locks; CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory; " + table)
	if out, code := snib(t, "doctor"); code != 0 || !strings.Contains(out, "owned by mallory") || !strings.Contains(out, "trigger that runs with the rights") {
		t.Errorf("doctor with a table of another role = %d\n%s", code, out)
	}
	change(`CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE mallory SUPERUSER; RETURN NEW; END $$;
		CREATE TRIGGER evil BEFORE INSERT ON snib_locks FOR EACH ROW EXECUTE FUNCTION evil()`)
	if out, code := snib(t, "doctor"); code != 1 || !strings.Contains(out, "with 1 triggers") {
		t.Errorf("doctor with a trigger on the table = %d, want 1 and the trigger\n%s", code, out)
	}
	var super bool
	if err := pool.QueryRow(t.Context(), "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'").Scan(&super); err != nil || super {
		t.Errorf("after doctor has looked, the owner of the trigger is a superuser: %v, %v", super, err)
	}
}
