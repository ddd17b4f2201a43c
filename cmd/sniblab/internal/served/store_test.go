package served

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/sqlitelock"
)

// A storeKind is a kind of store.
type storeKind string

const (
	sqlite   storeKind = "sqlite"
	redis    storeKind = "redis"
	postgres storeKind = "postgres"
)

// A store is a store that replicas share. It can be sent to a child.
type store struct {
	Kind storeKind
	Addr string // a file, an address, or a URL
}

// startStore starts a store.
func startStore(t testing.TB, kind storeKind) store {
	t.Helper()
	switch kind {
	case sqlite:
		return store{kind, filepath.Join(t.TempDir(), "locks.db")}
	case redis:
		return store{kind, redistest.Single(t).Used().Addr()}
	default:
		return store{kind, pgtest.URL(pgtest.Start(t).Addr())}
	}
}

// open returns a driver for the store.
func (s store) open(ctx context.Context) (driver.Driver, error) {
	switch s.Kind {
	case sqlite:
		return sqlitelock.Open(ctx, s.Addr)
	case redis:
		return redislock.Open(ctx, rueidis.ClientOption{InitAddress: []string{s.Addr}}, redislock.AllowSplitBrain())
	case postgres:
		pool, err := pgxpool.New(ctx, s.Addr)
		if err != nil {
			return nil, err
		}
		d, err := pglock.New(pool)
		if err != nil {
			pool.Close()
			return nil, err
		}
		return &pooled{d, pool}, nil
	}
	return nil, fmt.Errorf("there is no store %q", s.Kind)
}

// pooled closes its pool.
type pooled struct {
	*pglock.Driver
	pool *pgxpool.Pool
}

func (p *pooled) Close() error {
	defer p.pool.Close()
	return p.Driver.Close()
}
