//go:build unix

package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestMySQLScripts runs common scripts on MariaDB, each in a database of its own, and the script
// for mysql:// URLs.
func TestMySQLScripts(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t)
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, name := range kindScripts {
		if _, err := db.ExecContext(t.Context(), "CREATE DATABASE `"+name+"`"); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runOnStore(t, []string{name}, strings.TrimSuffix(mysqlURL(s.Addr()), mysqltest.Database)+name)
		})
	}
	t.Run("mysql", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "mysql", "mysql.txtar")}},
			"SNIB_URL="+mysqlURL(s.Addr()), "ADDR="+s.Addr(), "USER="+mysqltest.User)
	})
}

func mysqlURL(addr string) string {
	return "mysql://" + mysqltest.User + ":" + mysqltest.Password() + "@" + addr + "/" + mysqltest.Database
}
