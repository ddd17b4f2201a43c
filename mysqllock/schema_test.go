package mysqllock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/mysqllock"
)

func TestSchema(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db := dial(t, server.DSN())
	for _, account := range []string{"guest", "locker"} {
		must(t, db, "CREATE USER "+account+"@'%' IDENTIFIED BY 'x'")
	}
	must(t, db, "GRANT SELECT, INSERT, UPDATE, DELETE ON snib.* TO locker@'%'")
	must(t, db, "GRANT SELECT ON snib.* TO guest@'%'")
	as := func(account string) string { return account + ":x@tcp(" + server.Addr() + ")/snib" }

	t.Run("MadeByManyAtOnce", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 12 {
			d := newDriver(t, server.DSN(), mysqllock.Table("at once"))
			all.Go(func() {
				if l, err := d.Acquire(t.Context(), request(fmt.Sprint("first ", i%3), fmt.Sprint(i))); err != nil {
					t.Error(err)
				} else if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	t.Run("Migration", func(t *testing.T) {
		text, err := mysqllock.Schema("snib.migr`ated")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
				must(t, db, statement)
			}
		}
		d := newDriver(t, as("locker"), mysqllock.Table("snib.migr`ated"))
		release(t, acquire(t, d, request("a", "a")))
	})

	must(t, db, "CREATE TABLE foreign_table (name VARCHAR(20) PRIMARY KEY, x INT)")
	must(t, db, "CREATE TABLE newer LIKE `migr``ated`")
	must(t, db, "INSERT INTO newer SELECT * FROM `migr``ated` WHERE name = ''")
	must(t, db, "UPDATE newer SET slots = 99")
	tests := []struct {
		name    string
		account string
		table   string
		says    []string
		invalid bool
	}{
		{"MayNotCreate", "locker", "missing", []string{"may not create", "CREATE TABLE IF NOT EXISTS `missing`",
			"INSERT IGNORE"}, false},
		{"MayNotWrite", "guest", "migr`ated", []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON"}, false},
		{"Foreign", "locker", "foreign_table", []string{"not one of ours", "Table"}, true},
		{"Newer", "locker", "newer", []string{"version 99", "version 1"}, true},
		{"NoDatabase", "locker", "nowhere.locks", []string{"nowhere"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tryAcquire(t, newDriver(t, as(tt.account), mysqllock.Table(tt.table)), request("a", "a"))
			if err == nil || errors.Is(err, driver.ErrInvalid) != tt.invalid {
				t.Fatalf("Acquire = %v, want an error, ErrInvalid %v", err, tt.invalid)
			}
			for _, text := range tt.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not say %q: %v", text, err)
				}
			}
		})
	}
}

// Pruned rows never let a token go back.
func prunes(t *testing.T, server *mysqltest.Server) {
	rowstest.PruneKeepsTokens(t, lockTable(t, server, "pruned"))
}

// Rows are pruned whatever the kind of their last hold was, and with waiters that have died.
func prunesEachKind(t *testing.T, server *mysqltest.Server) {
	tb := lockTable(t, server, "kinds")
	d, kept := tb.Open(), request("kept", "a")
	kept.MinHold = kept.TTL
	release(t, acquire(t, d, kept))
	acquire(t, d, driver.Request{Name: "shared", ID: "a", TTL: kept.TTL, Shared: true})
	acquire(t, d, driver.Request{Name: "slots", ID: "a", TTL: kept.TTL, Slots: 2})
	tb.Exec(`UPDATE kinds SET waiters = 'x-1 {"id":"x"}\n' WHERE name = 'slots'`)
	for _, tt := range []struct {
		age  string
		left int64
	}{{"used = used - 7200000000", 3}, {"ends = ends - 7200000000", 0}} {
		tb.Exec("UPDATE kinds SET " + tt.age + " WHERE name > ' '")
		for range 2 {
			if err := d.Prune(t.Context(), 0); err != nil {
				t.Fatalf("Prune = %v", err)
			}
		}
		if got := tb.Number("SELECT count(*) FROM kinds WHERE name > ' '"); got != tt.left {
			t.Errorf("after %s and Prune there are %d rows, want %d", tt.age, got, tt.left)
		}
	}
}

// pruneIgnoresHugeTokens has somebody write tokens that are far ahead of the clock. Only the locks
// of these rows may get such tokens.
func pruneIgnoresHugeTokens(t *testing.T, server *mysqltest.Server) {
	tb := lockTable(t, server, "forged")
	rowstest.PruneIgnoresHugeTokens(t, tb)
	d, req := tb.Open(), request("huge", "b")
	req.Shared = true
	_, err := tryAcquire(t, d, req)
	rowstest.MustNameRow(t, "Acquire", err, "huge", "forged")
	tb.Exec("UPDATE forged SET token = 9223372036854775807 WHERE name = ''")
	_, err = tryAcquire(t, d, request("another", "b"))
	rowstest.MustNameRow(t, "Acquire", err, "", "forged")
}
