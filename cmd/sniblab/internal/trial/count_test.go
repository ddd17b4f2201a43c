package trial

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestCount checks that the lab counts the commands of clients, and not its own questions.
func TestCount(t *testing.T) {
	const commands = 5
	for _, tt := range []struct {
		kind  StoreKind
		atMin bool // the client sends more by itself, such as pings
		do    func(t *testing.T, s *store) error
	}{
		{Redis, false, func(_ *testing.T, s *store) error {
			_, err := redistest.Do(s.addrs[0], "SET", "key", "value")
			return err
		}},
		{Redlock, false, func(_ *testing.T, s *store) error {
			_, err := redistest.Do(s.addrs[1], "SET", "key", "value")
			return err
		}},
		{Postgres, false, func(_ *testing.T, s *store) error { return execPostgres(s.addrs[0], postgresDatabase, "SELECT 1") }},
		{PgBouncer, false, func(_ *testing.T, s *store) error { return execPostgres(s.addrs[0], postgresDatabase, "SELECT 1") }},
		{MySQL, false, func(t *testing.T, s *store) error {
			db, err := sql.Open("mysql", mysqltest.DSN(s.addrs[0]))
			if err != nil {
				return err
			}
			t.Cleanup(func() { db.Close() })
			_, err = db.Exec("DO 1")
			return err
		}},
		{Etcd, false, tryPattern(pattern.PutIfAbsent)},
		{ZooKeeper, true, tryPattern(pattern.Unwatched)},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			if tt.kind == Etcd {
				t.Setenv("PATH", filepath.Dir(etcdtest.Built(t))+":"+os.Getenv("PATH")) // the lab builds none
			}
			for _, name := range tt.kind.of().needs {
				programs[name](t)
			}
			s := openStore(t, Target{Store: tt.kind})
			if err := s.empty(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.count == nil {
				t.Skip("this server does not count: see statementStats")
			}
			count := func() int64 {
				n, err := s.count()
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			count() // a question that must not count
			before := count()
			for range commands {
				if err := tt.do(t, s); err != nil {
					t.Fatal(err)
				}
			}
			got := count() - before
			if got != commands && !(tt.atMin && got > commands) {
				t.Errorf("%d commands are counted as %d", commands, got)
			}
		})
	}
}

// TestManyTrials checks that PostgreSQL forgets the statements of earlier trials: it counts a
// limited number of them.
func TestManyTrials(t *testing.T) {
	pgtest.Program(t)
	s := openStore(t, Target{Store: Postgres})
	if s.count == nil {
		t.Skip("this server does not count: see statementStats")
	}
	for range 2 {
		if err := s.empty(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := execPostgres(s.addrs[0], postgresDatabase, "SELECT 'a statement of a trial'"); err != nil {
			t.Fatal(err)
		}
	}
	const old = "SELECT count(*) FROM pg_stat_statements WHERE dbid NOT IN (SELECT oid FROM pg_database)"
	var n int
	if err := askPostgres(s.addrs[0], old, &n); err != nil || n > 0 {
		t.Errorf("%d statements of databases that do not exist any more are counted (%v)", n, err)
	}
}

// TestClients checks that the lab counts the connections of clients where it is not on their way,
// and not those of servers.
func TestClients(t *testing.T) {
	redistest.Program(t)
	for _, kind := range []StoreKind{Sentinel, Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			s := openStore(t, Target{Store: kind})
			if n, ok := s.connections(); !ok || n != 0 {
				t.Errorf("%d connections, %v, want none", n, ok)
			}
			server := s.hit(nil).(*redistest.Node)
			conn, err := net.Dial("tcp", server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil { // now the server knows the connection
				t.Fatal(err)
			}
			if n, ok := s.connections(); !ok || n != 1 {
				t.Errorf("%d connections, %v, want 1", n, ok)
			}
		})
	}
}

// tryPattern returns a function that tries to get the lock of a pattern, which takes a command, and
// the connection of a client.
func tryPattern(name pattern.Name) func(*testing.T, *store) error {
	var client *pattern.Client
	return func(t *testing.T, s *store) (err error) {
		if client == nil {
			client, err = pattern.Open(context.WithoutCancel(t.Context()), pattern.Spec{Pattern: name, URLs: s.addrs, Client: "A", TTL: TTL}, untraced{})
			if err != nil {
				return err
			}
			t.Cleanup(client.Close)
		}
		_, err = client.Try(t.Context())
		return err
	}
}
