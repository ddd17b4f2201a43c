package trial

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// logCommands records how many commands the store has executed, if it says so. fault is the one
// whose cost that is, with its number, or "" before the first fault.
func (b *trial) logCommands(fault string, number int64) {
	if n, ok := b.store.commands(); ok {
		b.log(history.Event{Kind: judge.Commands, Fault: fault, ID: number, Token: uint64(n)})
	}
}

// commands returns how many commands the store has executed. It returns false if the store does not
// say so, or does not answer.
func (s *store) commands() (n int64, ok bool) {
	if s.servers == nil || s.count == nil {
		return 0, false
	}
	s.counting.Lock()
	defer s.counting.Unlock()
	n, err := s.count()
	return n, err == nil
}

// logConnections records how many connections clients have open, if that is known.
func (b *trial) logConnections() {
	if n, ok := b.store.connections(); ok {
		b.log(history.Event{Kind: judge.Connections, Token: uint64(n)})
	}
}

// connections returns how many connections clients have open. It returns false if the lab is not on
// their way, and the servers don't say so either.
func (s *store) connections() (n int, ok bool) {
	if s.servers != nil && s.clients != nil {
		n, err := s.clients()
		return n, err == nil
	}
	ways := s.allWays()
	for _, way := range ways {
		n += way.Open()
	}
	return n, len(ways) > 0
}

// Each function below returns a function that asks a store how many commands it has executed,
// without those of the questions themselves. An error says that a server does not answer.

// countTimeout is how long a server has for its answer.
const countTimeout = 5 * time.Second

// countRedis counts commands, and those that scripts call. Masters only are asked: a replica
// executes each change of its master once more.
func countRedis(nodes []*redistest.Node) func() (int64, error) {
	asked := int64(0) // so often; each time is a command
	return func() (int64, error) {
		sum := int64(0)
		for _, n := range nodes {
			info, err := n.Fields("INFO")
			if err != nil {
				return 0, err
			}
			if info["role"] != "master" {
				continue
			}
			commands, err := strconv.ParseInt(info["total_commands_processed"], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += commands - asked
		}
		asked++
		return sum, nil
	}
}

// noClient matches the lines of CLIENT LIST that are about Sentinels, replicas and masters.
var noClient = regexp.MustCompile(` name=sentinel-| flags=[SM]`)

// redisClients returns a function that counts the connections of clients to all nodes.
func redisClients(nodes []*redistest.Node) func() (int, error) {
	return func() (int, error) {
		sum := 0
		for _, n := range nodes {
			answer, err := n.Do("CLIENT", "LIST")
			if err != nil {
				return 0, err
			}
			for line := range strings.Lines(fmt.Sprint(answer)) {
				if !noClient.MatchString(line) {
					sum++
				}
			}
			sum-- // the connection that asks
		}
		return sum, nil
	}
}

// statementStats returns the settings that make a PostgreSQL server count statements, or none if
// the library that does so is not installed. The server's own statistics count transactions only,
// and may be late by seconds.
func statementStats(t testing.TB) []string {
	program, err := filepath.EvalSymlinks(pgtest.Program(t))
	if err != nil {
		t.Fatalf("find the libraries of PostgreSQL: %v", err)
	}
	for _, dir := range []string{"lib", "lib/postgresql", "lib64/pgsql"} {
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(program), "..", dir, "pg_stat_statements.so")) // the pattern is right
		if len(found) > 0 {
			return []string{"shared_preload_libraries=pg_stat_statements"}
		}
	}
	return nil
}

// countPostgres counts the statements of clients in the database of the trial, without those that
// functions execute. The server must run with [statementStats]; if there are none, countPostgres
// returns nil.
func countPostgres(t testing.TB, addr func() string) func() (int64, error) {
	if statementStats(t) == nil {
		return nil
	}
	if err := execPostgres(addr(), "postgres", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		t.Fatalf("count statements: %v", err)
	}
	const query = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements" +
		" WHERE dbid = (SELECT oid FROM pg_database WHERE datname = '" + postgresDatabase + "')"
	return func() (n int64, err error) {
		err = askPostgres(addr(), query, &n)
		return n, err
	}
}

// askPostgres reads the only answer to a query. The simple protocol also passes PgBouncer.
func askPostgres(addr, query string, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, pgtest.URL(addr)+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // it has answered
	return conn.QueryRow(ctx, query).Scan(answer)
}

// countMySQL counts statements, without those of stored programs, and ends of connections. It keeps
// its own connection, whose end would count some time after it.
func countMySQL(t testing.TB, dsn func(params ...string) string) func() (int64, error) {
	var db *sql.DB
	var address string
	asked := int64(0) // so often; each time is a statement
	t.Cleanup(func() {
		if db != nil {
			_ = db.Close() // the server ends, too
		}
	})
	return func() (n int64, err error) {
		if now := dsn("timeout="+countTimeout.String(), "readTimeout="+countTimeout.String()); db == nil || now != address {
			if db != nil {
				_ = db.Close() // its server has failed
			}
			if db, err = openMySQL(now); err != nil {
				return 0, err
			}
			address = now
		}
		var name string
		if err := db.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
			return 0, err
		}
		asked++
		return n - asked, nil
	}
}

// openMySQL opens a pool that says nothing on the screen when its server has failed.
func openMySQL(dsn string) (*sql.DB, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// countEtcd counts requests, and messages in streams: those that make a watch, and keep-alives.
func countEtcd(addrs ...string) func() (int64, error) {
	return func() (int64, error) {
		sum := 0.0
		for _, addr := range addrs {
			text, err := get(addr, "/metrics")
			if err != nil {
				return 0, err
			}
			for _, line := range received.FindAllStringSubmatch(text, -1) {
				n, err := strconv.ParseFloat(line[1], 64)
				if err != nil {
					return 0, err
				}
				sum += n
			}
		}
		return int64(sum), nil
	}
}

// received matches the lines of etcd's metrics that count requests.
var received = regexp.MustCompile(`(?m)^grpc_server_msg_received_total\{.*\} (.*)$`)

// countZooKeeper counts requests, and the pings of sessions.
func countZooKeeper(servers ...*zktest.Server) func() (int64, error) {
	asked := int64(0) // so often; each time is a request to each server
	return func() (int64, error) {
		asked++
		sum := int64(0)
		for _, s := range servers {
			n, err := s.Received()
			if err != nil {
				return 0, err
			}
			sum += n - asked
		}
		return sum, nil
	}
}
