package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestMySQLScripts runs common scripts on MariaDB, and the script about it.
func TestMySQLScripts(t *testing.T) {
	t.Parallel()
	for _, name := range kindScripts {
		runOnStore(t, []string{name}, mysqlURL(mysqltest.Start(t).Addr()))
	}
	s := mysqltest.Start(t)
	t.Run("mysql", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "mysql", "mysql.txtar")}},
			"SNIB_URL="+mysqlURL(s.Addr()), "ADDR="+s.Addr(), "USER="+mysqltest.User)
	})
}

func mysqlURL(addr string) string {
	return "mysql://" + mysqltest.User + ":" + mysqltest.Password + "@" + addr + "/" + mysqltest.Database
}
