package mysqllock_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
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
	as := func(t *testing.T, account string) *sql.DB { return dial(t, account+":x@tcp("+server.Addr()+")/snib") }

	t.Run("MadeByManyAtOnce", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 12 {
			d := newDriver(t, db, mysqllock.Table("at once"))
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
		d := newDriver(t, as(t, "locker"), mysqllock.Table("snib.migr`ated"))
		release(t, acquire(t, d, request("a", "a")))
	})
	t.Run("DroppedMeanwhile", func(t *testing.T) {
		d := newDriver(t, db, mysqllock.Table("dropped"))
		before := acquire(t, d, request("a", "a")).Grant().Token
		must(t, db, "DROP TABLE dropped")
		_, _ = tryAcquire(t, d, request("a", "b")) // notices that the table is gone
		if got := acquire(t, d, request("a", "b")).Grant().Token; got <= before {
			t.Errorf("token %d after %d", got, before)
		}
		must(t, db, "TRUNCATE dropped")
		newDriver(t, db, mysqllock.Table("dropped"))
		release(t, acquire(t, newDriver(t, db, mysqllock.Table("dropped")), request("a", "c")))
	})
	t.Run("EmptiedMeanwhile", func(t *testing.T) {
		d := newDriver(t, db, mysqllock.Table("emptied"))
		l := acquire(t, d, request("a", "a"))
		must(t, db, "TRUNCATE emptied")
		if err := l.Release(t.Context()); !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release after the table was emptied = %v, want ErrUnavailable or ErrLost", err)
		}
		if _, err := tryAcquire(t, d, request("b", "a")); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire after the table was emptied = %v, want a lease or ErrUnavailable", err)
		}
		next := acquire(t, d, request("a", "b"))
		if next.Grant().Token <= l.Grant().Token {
			t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
		}
		release(t, next)
	})

	must(t, db, "CREATE TABLE foreign_table (name VARCHAR(20) PRIMARY KEY, x INT)")
	must(t, db, "CREATE TABLE newer LIKE `migr``ated`")
	must(t, db, "INSERT INTO newer SELECT name, version, token, 99, held, kept, since, ends, holder, holders, waiters, called, used FROM `migr``ated` WHERE name = ''")
	must(t, db, "CREATE TABLE unsafe LIKE `migr``ated`")
	must(t, db, "INSERT INTO unsafe SELECT * FROM newer")
	must(t, db, "UPDATE unsafe SET slots = 1")
	must(t, db, "ALTER TABLE unsafe ENGINE = MyISAM")
	tests := []struct {
		name    string
		account string
		table   string
		says    []string
		invalid bool
	}{
		{"MayNotCreate", "locker", "missing", []string{"may not create", "CREATE TABLE IF NOT EXISTS `missing`", "INSERT IGNORE"}, false},
		{"MayNotWrite", "guest", "migr`ated", []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON"}, false},
		{"Foreign", "locker", "foreign_table", []string{"not one of ours", "Table"}, true},
		{"Newer", "locker", "newer", []string{"version 99", "version 1"}, true},
		{"NotTransactional", "locker", "unsafe", []string{"MyISAM", "InnoDB"}, true},
		{"NoDatabase", "locker", "nowhere.locks", []string{"nowhere"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tryAcquire(t, newDriver(t, as(t, tt.account), mysqllock.Table(tt.table)), request("a", "a"))
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
	t.Run("ReadOnly", func(t *testing.T) {
		d := newDriver(t, as(t, "locker"), mysqllock.Table("migr`ated"))
		must(t, db, "SET GLOBAL read_only = 1")
		defer must(t, db, "SET GLOBAL read_only = 0")
		if _, err := tryAcquire(t, d, request("read only", "a")); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "replica") {
			t.Errorf("Acquire on a server that is read only = %v", err)
		}
	})
}

// Pruned rows never let a token go back.
func prunes(t *testing.T, server *mysqltest.Server) {
	db := dial(t, server.DSN())
	d := newDriver(t, db)
	l := acquire(t, d, request("old", "a"))
	ahead := l.Grant().Token + 1_000_000_000 // ahead of the clock
	release(t, l)
	held, waited := acquire(t, d, request("held", "a")), acquire(t, d, request("waited", "a"))
	must(t, db, "UPDATE snib_locks SET token = ?, version = version + 1 WHERE name = 'old'", ahead)
	age := func() { must(t, db, "UPDATE snib_locks SET used = used - 7200000000 WHERE name > 'a'") }
	prune := func() {
		t.Helper()
		if err := d.Prune(testContext(t), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	rows := func() int64 { return number(t, db, "SELECT COUNT(*) FROM snib_locks WHERE name = 'old'") }
	prune()
	prune()
	if rows() != 1 {
		t.Error("a row was pruned that was used a moment ago")
	}
	age()
	prune() // notes the token
	if rows() != 1 {
		t.Error("a row was pruned whose token was not noted")
	}
	prune()
	if rows() != 0 {
		t.Error("a row was not pruned that was not used for long")
	}
	if got := acquire(t, d, request("old", "b")).Grant().Token; got <= ahead {
		t.Errorf("token %d after %d, which was pruned", got, ahead)
	}
	if got := acquire(t, d, request("new", "b")).Grant().Token; got <= ahead {
		t.Errorf("token %d after %d, which was pruned, of another name", got, ahead)
	}
	release(t, held)
	release(t, waited)
}

// pruneIgnoresHugeTokens has somebody write tokens that are far ahead of the clock. Only the locks
// of these rows may get such tokens.
func pruneIgnoresHugeTokens(t *testing.T, server *mysqltest.Server) {
	db := dial(t, server.DSN())
	d := newDriver(t, db, mysqllock.Table("forged"))
	tokens := map[string]string{"huge": "9223372036854775807", "ahead": "token + 2 * 86400000000", "usual": "token + 3600000000"}
	for name, token := range tokens {
		release(t, acquire(t, d, request(name, "a")))
		must(t, db, "UPDATE forged SET used = used - 7200000000, token = "+token+" WHERE name = ?", []byte(name))
	}
	ahead := number(t, db, "SELECT token FROM forged WHERE name = 'ahead'")
	for range 3 {
		if err := d.Prune(testContext(t), 0); err != nil {
			t.Fatalf("Prune = %v", err)
		}
	}
	for name, want := range map[string]int64{"huge": 1, "ahead": 1, "usual": 0} {
		if got := number(t, db, "SELECT COUNT(*) FROM forged WHERE name = ?", []byte(name)); got != want {
			t.Errorf("after Prune there are %d rows of %q, want %d", got, name, want)
		}
	}
	if got := int64(acquire(t, d, request("new", "b")).Grant().Token); got >= ahead {
		t.Errorf("Token of a new name = %d, want less than %d", got, ahead)
	}
	if got := int64(acquire(t, d, request("ahead", "b")).Grant().Token); got <= ahead {
		t.Errorf("Token of a name whose token is ahead = %d, want more than %d", got, ahead)
	}
	for _, shared := range []bool{false, true} {
		req := request("huge", "b")
		req.Shared = shared
		_, err := tryAcquire(t, d, req)
		jobtest.MustNameRow(t, "Acquire", err, "huge", "forged")
	}
	must(t, db, "UPDATE forged SET token = 9223372036854775807 WHERE name = ''")
	_, err := tryAcquire(t, d, request("another", "b"))
	jobtest.MustNameRow(t, "Acquire", err, "", "forged")
}
