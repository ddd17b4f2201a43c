package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestPostgresScripts runs the scripts that say the same of every store on PostgreSQL, and the one that is about it.
func TestPostgresScripts(t *testing.T) {
	for _, name := range sameScripts {
		sameOn(t, []string{name}, pgtest.Start(t).URL())
	}
	s := pgtest.Start(t)
	t.Run("postgres", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "postgres", "postgres.txtar")}},
			"SNIB_URL="+s.URL(), "ADDR="+s.Addr())
	})
}
