package pglock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// maxConns is how many connections a driver has at most in its pool. Requests gather when two
// batches are under way, so more would only serve statements that wait for rows.
const maxConns = 8

// newPool returns the pool of a driver: it connects as the pool of the program does, and nobody
// else uses it. In a shared pool a renewal would wait for the program's own queries, and a few
// slow ones would lose all its locks.
func newPool(program *pgxpool.Pool) (*pgxpool.Pool, error) {
	conf := program.Config()
	conf.MaxConns = max(2, min(conf.MaxConns, maxConns)) // one is left to urgent statements
	conf.MinConns, conf.MinIdleConns = 0, 0              // none before the first request
	// A connection that is dead must not keep its place: a ping or an attempt to connect would last
	// for a minute or two. A statement that finds a stale connection is repeated.
	conf.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	if c := conf.ConnConfig; c.ConnectTimeout == 0 || c.ConnectTimeout > driverkit.CallTimeout {
		c.ConnectTimeout = driverkit.CallTimeout
	}
	conf.BeforeConnect = beforeConnect(conf.BeforeConnect)
	onNotice := conf.ConnConfig.OnNotice
	conf.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == syncRoutine {
			conn.CustomData()[syncRoutine] = true
		}
		if onNotice != nil {
			onNotice(conn, n)
		}
	}
	return pgxpool.NewWithConfig(context.Background(), conf)
}

// beforeConnect returns a hook that lets the program's own one change the configuration, such as
// its password, and then sets what the driver needs, whatever the user's defaults are. In another
// encoding, the server would take our names, and that of the table, for others: two clients with
// different encodings would not exclude each other. pgx needs both settings for simple queries.
func beforeConnect(program connectHook) connectHook {
	return func(ctx context.Context, conf *pgx.ConnConfig) error {
		if program != nil {
			if err := program(ctx, conf); err != nil {
				return err
			}
		}
		ours := map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on"}
		for name, value := range conf.RuntimeParams {
			if _, replaced := ours[strings.ToLower(name)]; !replaced {
				ours[name] = value
			}
		}
		conf.RuntimeParams = ours // the program may use its map elsewhere
		return nil
	}
}

type connectHook = func(context.Context, *pgx.ConnConfig) error

// syncRoutine is the function of the server that waits for a synchronous standby. Its warnings say
// that the wait was cancelled. Unlike their text, its name is the same in all languages.
const syncRoutine = "SyncRepWaitForLSN"

// errNotReplicated means that a commit is on the server, and may not be on its synchronous standby.
var errNotReplicated = fmt.Errorf("%w: the server has not waited for its synchronous standby: somebody has cancelled that", driver.ErrUnavailable)

// syncError returns err, or errNotReplicated if the server has said so since the last call.
func syncError(conn *pgxpool.Conn, err error) error {
	data := conn.Conn().PgConn().CustomData()
	if _, cancelled := data[syncRoutine]; cancelled && err == nil {
		err = errNotReplicated
	}
	delete(data, syncRoutine)
	return err
}

// closePool closes the pool. It waits for statements that are under way, but not for a server that
// hangs.
func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() { pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(driverkit.CleanupTimeout):
	}
}
