package main

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// distantMicros is the end of the year 9999 in microseconds.
const distantMicros = "253402300799000000"

// writeDistantEnd writes an end in the far future for a lock into the store of s, as anybody with
// write access can. Where a lock outlives its process, the end is that of a lock of snib.
func writeDistantEnd(t *testing.T, s server, url, name string) {
	t.Helper()
	if outlives(url) {
		mustSnib(t, "lock", "-u", url, "-n", "--ttl", "1m", name)
	}
	exec := func(driver, dsn, statement string) {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		res, err := db.ExecContext(t.Context(), statement)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			t.Fatalf("%s: %d rows, %v", statement, n, err)
		}
	}
	switch s := s.(type) {
	case *redistest.Node:
		s.Must("PEXPIRE", name, "9000000000000000")
	case group:
		for _, node := range s {
			node.(*redistest.Node).Must("PEXPIRE", name, "9000000000000000")
		}
	case *pgtest.Server:
		exec("pgx", s.URL(), `UPDATE snib_locks SET holders = jsonb_set(jsonb_set(holders, '{0,until}', '`+distantMicros+`'), '{0,ttl}', '`+
			distantMicros+`') WHERE name = '`+name+`'`)
	case *mysqltest.Server:
		exec("mysql", s.DSN(), `UPDATE snib_locks SET ends = `+distantMicros+`, ttl = `+distantMicros+` WHERE name = '`+name+`'`)
	case *etcdtest.Server:
		lease := strings.Fields(s.Ctl("lease", "grant", "3153600000"))[1]         // 100 years
		s.Ctl("put", "--lease="+lease, name+"/"+strings.TrimLeft(lease, "0"), "") // as clients write it
	case *zktest.Server:
		conn, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// A released hold with the longest MinHold that fits.
		node := "/snib/" + name + "/_k_00000000-0000-4000-8000-000000000000-lock-"
		data, acl := []byte(`{"id":"x","kept":9223372036854775807}`), zk.WorldACL(zk.PermAll)
		_, err = conn.Create(node, data, zk.FlagSequence, acl)
		for errors.Is(err, zk.ErrNoNode) { // the server has removed the empty folder of the lock
			if _, err = conn.Create("/snib/"+name, nil, zk.FlagPersistent, acl); err == nil || errors.Is(err, zk.ErrNodeExists) {
				_, err = conn.Create(node, data, zk.FlagSequence, acl)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("no way to write to %T", s)
	}
}

// TestDistantEnd writes an absurd end of a lock into each kind of store. The lock is held, and
// people are told that its end is absurd. Other locks are free. After a release by force, the next
// waiter gets the lock at once.
func TestDistantEnd(t *testing.T) {
	forEachServer(t, func(t *testing.T, s server, url string) {
		run := func(want int, args ...string) string {
			t.Helper()
			out, code := snib(t, append([]string{args[0], "-u", url}, args[1:]...)...)
			if code != want || strings.Contains(out, "panic") {
				t.Errorf("%v: exit code %d, want %d: %s", args, code, want, out)
			}
			return out
		}
		run(0, "run", "name", "--", "true") // creates what the store needs
		writeDistantEnd(t, s, url, "name")
		negative := regexp.MustCompile(`-[0-9]+[dhms]`) // duration
		check := func(when string) {
			t.Helper()
			run(75, "run", "-n", "name", "--", "true")
			run(0, "run", "-n", "other", "--", "true")
			for _, args := range [][]string{{"ls"}, {"show", "name"}, {"leaks"}} {
				want := 0
				if args[0] == "leaks" {
					want = 1
				}
				out := run(want, args...)
				if !strings.Contains(out, "name") || negative.MatchString(out) || strings.Contains(out, " 0ms") {
					t.Errorf("%s, %v says %s", when, args, out)
				}
				if args[0] == "leaks" && !strings.Contains(out, "distant") {
					t.Errorf("%s, leaks says %s, want that the end is distant", when, out)
				}
			}
		}
		check("alone")
		waiter := start(t, "snib", "run", "-u", url, "name", "--", "true")
		await(t, "waiter", func() bool {
			out, _ := snib(t, "show", "-u", url, "name")
			return strings.Contains(out, "waiting")
		})
		check("with a waiter")
		select {
		case <-waiter.exited:
			t.Errorf("the waiter ended: %s", waiter.out.String())
		default:
		}
		run(0, "release", "--force", "--yes", "name")
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		select {
		case <-waiter.exited:
			if code := waiter.ProcessState.ExitCode(); code != 0 {
				t.Errorf("the waiter: exit code %d: %s", code, waiter.out.String())
			}
		case <-ctx.Done():
			t.Error("the waiter did not get the lock")
		}
	})
}
