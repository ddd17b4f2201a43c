package arena

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/lab/pattern"
)

// Stores returns all kinds of stores. The first one is the default.
func Stores() []StoreKind { return []StoreKind{Redis, Postgres, MySQL, Etcd, ZooKeeper, File, None} }

// Missing returns why the lab can't start a store on this machine, as a [*livetest.MissingError],
// or nil if it can.
func (k StoreKind) Missing() error {
	return livetest.Outside(func(t testing.TB) error {
		switch k {
		case Redis:
			redistest.Program(t)
		case Postgres:
			pgtest.Program(t)
		case MySQL:
			mysqltest.Program(t)
		case Etcd:
			etcdtest.Installed(t)
		case ZooKeeper:
			zktest.Java(t)
		case File, None:
		}
		return nil
	})
}

// A server is the server of a store.
type server interface {
	Addr() string
	Hang()
	Resume()
	Kill()
	Restart()
}

// A store is the store of a contestant. Each client reaches it by a way of its own.
type store struct {
	t      testing.TB
	c      Contestant
	server server                      // nil if there is none
	redis  *redistest.Node             // the same, or nil
	ways   [len(names)]*livetest.Proxy // of the clients; nil if there is no server
	file   string                      // or ""
	bouts  int                         // so many have begun
}

// openStore starts a store. It ends with t.
func openStore(t testing.TB, c Contestant) *store {
	s := &store{t: t, c: c}
	switch c.Store {
	case Redis:
		s.redis = redistest.Single(t, "appendonly yes")
		s.server = s.redis
	case Postgres:
		s.server = pgtest.Start(t)
	case MySQL:
		s.server = mysqltest.Start(t)
	case Etcd:
		// Its shortest lease is three halves of the election timeout, in whole seconds.
		s.server = etcdtest.StartInstalled(t, "--heartbeat-interval", "50", "--election-timeout", "500")
	case ZooKeeper:
		s.server = zktest.Single(t)
	case File, None:
		return s
	}
	for i := range s.ways {
		s.ways[i] = livetest.NewProxy(t, s.server.Addr())
	}
	return s
}

// empty removes all data, or sees to it that the next bout does not meet them.
func (s *store) empty() {
	s.bouts++
	s.heal()
	switch s.c.Store {
	case Redis:
		s.redis.Must("FLUSHALL")
	case Postgres:
		s.emptyPostgres()
	case File:
		s.file = filepath.Join(s.t.TempDir(), "locks.db")
	case MySQL, Etcd, ZooKeeper, None:
	}
}

// postgresDatabase is the database of a bout.
const postgresDatabase = "lab"

// emptyPostgres replaces the database, whoever still uses it.
func (s *store) emptyPostgres() {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	run := func(database string, statements ...string) error {
		conn, err := pgx.Connect(ctx, postgresURL(s.server.Addr(), database))
		if err != nil {
			return err
		}
		defer conn.Close(ctx) //nolint:errcheck // all statements are done
		for _, statement := range statements {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
	err := run("postgres", "DROP DATABASE IF EXISTS "+postgresDatabase+" WITH (FORCE)", "CREATE DATABASE "+postgresDatabase)
	if err == nil && s.c.IsControl() {
		err = run(postgresDatabase, pattern.PostgresSchema)
	}
	if err != nil {
		s.t.Fatalf("make a database: %v", err)
	}
}

func postgresURL(addr, database string) string {
	return "postgres://postgres@" + addr + "/" + database + "?sslmode=disable"
}

// lockName returns the name of the lock in the store. If the store can't be emptied, each bout has
// a name of its own.
func (s *store) lockName() string {
	switch s.c.Store {
	case MySQL, Etcd, ZooKeeper:
		return fmt.Sprint(lockName, s.bouts)
	default:
		return lockName
	}
}

// url returns the URL of the store for a client.
func (s *store) url(client int) string {
	addr := ""
	if way := s.ways[client]; way != nil {
		addr = way.Addr()
	}
	switch s.c.Store {
	case Redis:
		return "redis://" + addr + s.c.Query
	case Postgres:
		return postgresURL(addr, postgresDatabase) + s.c.Query
	case MySQL:
		return fmt.Sprintf("mysql://%s:%s@%s/%s", mysqltest.User, mysqltest.Password, addr, mysqltest.Database) + s.c.Query
	case Etcd:
		return "etcd://" + addr + s.c.Query
	case ZooKeeper:
		return "zk://" + addr + s.c.Query
	case File:
		return s.c.Scheme + s.file + s.c.Query
	default:
		return s.c.Scheme + s.c.Query
	}
}

// heal ends all faults of the network.
func (s *store) heal() {
	for _, way := range s.ways {
		if way != nil {
			way.Heal()
		}
	}
}

// forget restarts the Redis server without its memory.
func (s *store) forget() {
	s.redis.Kill()
	if err := os.RemoveAll(filepath.Join(s.redis.Dir(), "appendonlydir")); err != nil {
		s.t.Fatalf("remove the data of the server: %v", err)
	}
	_ = os.Remove(filepath.Join(s.redis.Dir(), "appendonly.aof")) // before Redis 7 it is one file
	s.redis.Restart()
}

// endless counts the keys in Redis that never end.
func (s *store) endless() (n int) {
	if s.redis == nil {
		return 0
	}
	keys, _ := s.redis.Must("KEYS", "*").([]any)
	for _, key := range keys {
		if s.redis.Must("PTTL", fmt.Sprint(key)) == int64(-1) {
			n++
		}
	}
	return n
}
