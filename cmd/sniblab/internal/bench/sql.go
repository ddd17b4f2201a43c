package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
)

// postgres compares snib with locks by hand on one PostgreSQL server, which waits for the disk.
func postgres() scenario {
	const lock, row = "advisory-lock", "advisory-lock-and-row"
	return scenario{
		name:     "postgres",
		about:    "snib and locks by hand on one PostgreSQL that waits for the disk: what a lock costs beside the least that it can cost, with a durable token and without.",
		start:    startPostgres,
		variants: sqlVariants(row, openPostgres(newPostgresRows), sessionAims(lock)),
		peers: []peer{
			{name: snibRow, role: ours, beside: row, open: openPostgres(newPostgresRows), about: "snib in rows, with its default options"},
			{name: sessionRow, role: ours, beside: lock, open: openPostgres(newPostgresSession), about: "snib with session locks"},
			{name: lock, role: floor, open: openByHand(newAdvisory(false)),
				about: "pg_advisory_lock by hand, on a connection for each goroutine: it writes nothing, and has no token, no TTL and no holder that others see"},
			{name: row, role: floor, open: openByHand(newAdvisory(true)),
				about: "the same, and one row that is changed when the lock is taken: the least that a lock costs whose token outlives a crash"},
		},
	}
}

// mariadb compares snib with locks by hand on one MariaDB server, which waits for the disk.
func mariadb() scenario {
	const lock, row = "get-lock", "get-lock-and-row"
	return scenario{
		name:     "mysql",
		about:    "snib and locks by hand on one MariaDB that waits for the disk: what a lock costs beside the least that it can cost, with a durable token and without.",
		start:    startMariaDB,
		variants: sqlVariants(row, openMariaDB(mysqllock.New), sqlAims{}),
		peers: []peer{
			{name: snibRow, role: ours, beside: row, open: openMariaDB(mysqllock.New), about: "snib in rows, with its default options"},
			{name: lock, role: floor, open: openByHand(newGetLock(false)),
				about: "GET_LOCK by hand, on a connection for each goroutine: it writes nothing, and has no token, no TTL and no holder that others see"},
			{name: row, role: floor, open: openByHand(newGetLock(true)),
				about: "the same, and one row that is changed when the lock is taken: the least that a lock costs whose token outlives a crash"},
		},
	}
}

// sessionRow is the name of snib with session locks.
const sessionRow = "snib-session"

// sqlAims are further aims of the variants of sqlVariants.
type sqlAims struct{ cycles, handOvers []aim }

// sessionAims returns the aims of session locks. lock is the lock by hand without a row.
func sessionAims(lock string) sqlAims {
	return sqlAims{
		cycles:    []aim{{row: sessionRow, column: cyclesPerSecond, relativeTo: lock, op: "≥", bound: 0.6}},
		handOvers: []aim{{row: sessionRow, column: handOverP50, relativeTo: lock, op: "≤", bound: 1.5}},
	}
}

// sqlVariants returns the variants of postgres and mariadb. row is the name of the lock by
// hand that has a row.
func sqlVariants(row string, open func(setup) (*client, error), more sqlAims) []variant {
	const window = 2 * time.Second
	turns := takeTurns(2, append([]aim{{column: handOverP50, relativeTo: row, op: "≤", bound: 1.3}}, more.handOvers...))
	return []variant{
		{
			name: "1 goroutine, own name", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: window, columns: cycleColumns(),
			aims: append([]aim{{column: cyclesPerSecond, relativeTo: row, op: "≥", bound: 0.9}}, more.cycles...),
		},
		{
			name: "64 goroutines, own names", procs: 1, load: load{Goroutines: 64, Keys: 1}, window: window, columns: cycleColumns(),
			extra: []peer{{name: "snib-1-goroutine", role: reference, goroutines: 1, open: open, about: "snib in rows, with one goroutine"}},
			aims:  []aim{{column: cyclesPerSecond, relativeTo: "snib-1-goroutine", op: "≥", bound: 5}},
		},
		turns,
		{
			name: "64 goroutines, one name", procs: 1, load: load{Goroutines: 64}, window: window, columns: contendedColumns(),
			aims: []aim{{column: cyclesPerSecond, relativeTo: row, op: "≥", bound: 100}, {column: mostToLeast, op: "≤", bound: 1.2}},
		},
	}
}

// startPostgres starts a server with the table of the locks by hand.
func startPostgres(t testing.TB) *store {
	t.Helper()
	server := pgtest.Start(t)
	about := versionOf(t, "PostgreSQL", func(ctx context.Context) (version string, err error) {
		conn, err := pgx.Connect(ctx, server.URL())
		if err != nil {
			return "", err
		}
		defer conn.Close(ctx) //nolint:errcheck // it has answered
		if _, err := conn.Exec(ctx, "CREATE TABLE by_hand (name text PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 50)"); err != nil {
			return "", err
		}
		return version, conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	})
	return &store{addrs: []string{server.Addr()}, about: about, servers: []*livetest.Process{server.Process}}
}

func newPostgresRows(pool *pgxpool.Pool) (driver.Driver, error) { return pglock.New(pool) }

func newPostgresSession(pool *pgxpool.Pool) (driver.Driver, error) { return pglock.NewSession(pool) }

func openPostgres(newDriver func(*pgxpool.Pool) (driver.Driver, error)) func(setup) (*client, error) {
	return func(s setup) (*client, error) {
		pool, err := pgxpool.New(context.Background(), pgtest.URL(s.addr()))
		if err != nil {
			return nil, err
		}
		d, err := newDriver(pool)
		if err != nil {
			return nil, err
		}
		return snibClient(s, d)
	}
}

// startMariaDB starts a server with the table of the locks by hand.
func startMariaDB(t testing.TB) *store {
	t.Helper()
	server := mysqltest.Start(t)
	about := versionOf(t, "MariaDB", func(ctx context.Context) (version string, err error) {
		db, err := sql.Open("mysql", server.DSN())
		if err != nil {
			return "", err
		}
		defer db.Close() //nolint:errcheck // it has answered
		if _, err := db.ExecContext(ctx, "CREATE TABLE by_hand (name VARBINARY(767) PRIMARY KEY, token BIGINT NOT NULL)"); err != nil {
			return "", err
		}
		return version, db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	})
	return &store{addrs: []string{server.Addr()}, about: about, servers: []*livetest.Process{server.Process}}
}

func openMariaDB(newDriver func(*sql.DB, ...mysqllock.Option) (*mysqllock.Driver, error)) func(setup) (*client, error) {
	return func(s setup) (*client, error) {
		db, err := dialMariaDB(s)
		if err != nil {
			return nil, err
		}
		d, err := newDriver(db)
		if err != nil {
			return nil, err
		}
		return snibClient(s, d)
	}
}

func dialMariaDB(s setup) (*sql.DB, error) {
	conf, err := mysql.ParseDSN(mysqltest.DSN(s.addr()))
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(64) // more than the driver uses: no connection is closed and opened again
	return db, nil
}

// A hand is a connection with which one goroutine at a time locks by hand.
type hand interface {
	lock(name string) error
	insertRow(name string) error
	changeRow(name string) error
	unlock(name string) error
	close()
}

// hands are the connections of a process. Those that are idle are used again.
type hands struct {
	open func() (hand, error)
	row  bool     // the lock has a row
	rows sync.Map // names that have a row

	mu        sync.Mutex
	idle, all []hand // guarded by mu
}

// openByHand returns an open for locks by hand.
func openByHand(newHand func(setup) (open func() (hand, error), row bool, err error)) func(setup) (*client, error) {
	return func(s setup) (*client, error) {
		open, row, err := newHand(s)
		if err != nil {
			return nil, err
		}
		h := &hands{open: open, row: row}
		return &client{caller: func() caller { return &handCaller{hands: h} }, close: h.close}, nil
	}
}

func (h *hands) take() (hand, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.idle) - 1; last >= 0 {
		taken := h.idle[last]
		h.idle = h.idle[:last]
		return taken, nil
	}
	opened, err := h.open()
	if err == nil {
		h.all = append(h.all, opened)
	}
	return opened, err
}

func (h *hands) putBack(returned hand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, returned)
}

func (h *hands) close() {
	for _, opened := range h.all {
		opened.close()
	}
}

type handCaller struct {
	hands *hands
	hand  hand
	name  string
}

// acquire ignores its context, which would close the connection. It returns nevertheless: after the
// window, the others still release.
func (c *handCaller) acquire(_ context.Context, name string) (err error) {
	if c.hand, err = c.hands.take(); err != nil {
		return err
	}
	c.name = name
	if err := c.hand.lock(name); err != nil || !c.hands.row {
		return err
	}
	if _, known := c.hands.rows.LoadOrStore(name, true); !known {
		if err := c.hand.insertRow(name); err != nil {
			return err
		}
	}
	return c.hand.changeRow(name)
}

func (c *handCaller) release() error {
	err := c.hand.unlock(c.name)
	c.hands.putBack(c.hand)
	return err
}

// newAdvisory is for pg_advisory_lock, with a row or without one.
func newAdvisory(row bool) func(setup) (func() (hand, error), bool, error) {
	return func(s setup) (func() (hand, error), bool, error) {
		return func() (hand, error) {
			conn, err := pgx.Connect(context.Background(), pgtest.URL(s.addr()))
			return &advisory{conn}, err
		}, row, nil
	}
}

type advisory struct{ conn *pgx.Conn }

func (a *advisory) do(statement string, args ...any) error {
	_, err := a.conn.Exec(context.Background(), statement, args...) // it is prepared the first time
	return err
}

// number returns the number of a lock.
func number(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return int64(h.Sum64())
}

func (a *advisory) lock(name string) error { return a.do("SELECT pg_advisory_lock($1)", number(name)) }
func (a *advisory) unlock(name string) error {
	return a.do("SELECT pg_advisory_unlock($1)", number(name))
}
func (a *advisory) insertRow(name string) error {
	return a.do("INSERT INTO by_hand VALUES ($1, 0) ON CONFLICT DO NOTHING", name)
}

func (a *advisory) changeRow(name string) (err error) {
	var token int64
	return a.conn.QueryRow(context.Background(), "UPDATE by_hand SET token = token + 1 WHERE name = $1 RETURNING token", name).Scan(&token)
}

func (a *advisory) close() { _ = a.conn.Close(context.Background()) }

// newGetLock is for GET_LOCK, with a row or without one.
func newGetLock(row bool) func(setup) (func() (hand, error), bool, error) {
	return func(s setup) (func() (hand, error), bool, error) {
		db, err := dialMariaDB(s)
		return func() (hand, error) { return openGetLock(db) }, row, err
	}
}

// A getLock has one connection with prepared statements.
type getLock struct {
	conn                      *sql.Conn
	get, free, insert, change *sql.Stmt
}

func openGetLock(db *sql.DB) (hand, error) {
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	g := &getLock{conn: conn}
	for stmt, text := range map[**sql.Stmt]string{
		&g.get:    "SELECT GET_LOCK(?, 60)",
		&g.free:   "SELECT RELEASE_LOCK(?)",
		&g.insert: "INSERT IGNORE INTO by_hand VALUES (?, 0)",
		&g.change: "UPDATE by_hand SET token = LAST_INSERT_ID(token + 1) WHERE name = ?", // the answer has the token
	} {
		if *stmt, err = conn.PrepareContext(ctx, text); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return g, nil
}

// one runs a query that must return 1.
func one(stmt *sql.Stmt, name string) error {
	var n int
	err := stmt.QueryRow(name).Scan(&n)
	if err == nil && n != 1 {
		err = fmt.Errorf("the server answers %d", n)
	}
	return err
}

func (g *getLock) lock(name string) error   { return one(g.get, name) }
func (g *getLock) unlock(name string) error { return one(g.free, name) }

func (g *getLock) insertRow(name string) error {
	_, err := g.insert.Exec(name)
	return err
}

func (g *getLock) changeRow(name string) error {
	_, err := g.change.Exec(name)
	return err
}

func (g *getLock) close() { _ = g.conn.Close() }
