package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// A postgresServer is a PostgreSQL server with the stock, and with locks of both kinds.
type postgresServer struct {
	url      string
	pool     *pgxpool.Pool
	locks    *pglock.Driver
	director *Director

	text string // what lock returned last
}

// startPostgres starts a server.
func startPostgres(s *Director) *postgresServer {
	p := &postgresServer{url: pgtest.Start(s.t).URL()}
	pool, err := pgxpool.New(s.ctx, p.url)
	check("postgres", err)
	s.t.Cleanup(pool.Close)
	schema, err := pglock.Schema("")
	check("postgres", err)
	_, err = pool.Exec(s.ctx, pattern.PostgresSchema+schema)
	check("postgres", err)
	locks, err := pglock.New(pool)
	check("postgres", err)
	s.t.Cleanup(func() { _ = locks.Close() }) // it holds nothing
	p.pool, p.locks = pool, locks
	return p
}

// Postgres returns the PostgreSQL server of the demo, without a lock and with a full stock.
func (s *Director) Postgres() *postgresServer {
	s.starting("a PostgreSQL server")
	if s.postgres == nil {
		s.postgres = startPostgres(s)
	}
	p := s.postgres
	p.director = s
	_, err := p.pool.Exec(s.ctx, fmt.Sprintf(`TRUNCATE locks, articles; INSERT INTO articles VALUES (1, %d)`, OpeningStock))
	check("postgres", err)
	s.look, s.stock = p.look, p.stock
	s.Begin()
	return p
}

// Client starts a client.
func (p *postgresServer) Client(name string, pat pattern.Name, ttl time.Duration) *Client {
	return p.director.start(pattern.Spec{Pattern: pat, URLs: []string{p.url}, Client: name, TTL: ttl})
}

// look returns the state of the lock, and of the stock.
func (p *postgresServer) look() []string {
	return []string{p.lock(), fmt.Sprintf("stock = %d", p.stock())}
}

// lock describes the lock: a row of the broken pattern, or the row of snib.
func (p *postgresServer) lock() string {
	var owner string
	if err := p.pool.QueryRow(p.director.ctx, `SELECT owner FROM locks`).Scan(&owner); err == nil {
		return fmt.Sprintf("locks has the row ('%s', '%s')", pattern.LockName, owner)
	}
	status, err := p.locks.Status(p.director.ctx, pattern.LockName)
	if err != nil || len(status.Holders) == 0 {
		return "the lock is free"
	}
	h := status.Holders[0]
	if text := fmt.Sprintf("%s holds %s, ", h.Holder.Label, pattern.LockName); !strings.HasPrefix(p.text, text) {
		p.text = text + "expires in " + shortly(h.Left) // it does not count down, which would be news each time
	}
	return p.text
}

func (p *postgresServer) stock() (n int) {
	_ = p.pool.QueryRow(p.director.ctx, `SELECT stock FROM articles`).Scan(&n) // 0 if the variant was interrupted
	return n
}
