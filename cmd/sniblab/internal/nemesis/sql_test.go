//go:build linux

package nemesis

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// rowOrSession sets what differs between leases in rows and in sessions.
func (w *world) rowOrSession(session bool) {
	w.Mixed, w.Abandon = !session, true
}

func startPG(kind string) func(*world) {
	return func(w *world) {
		t, shim := newShim(w.t)
		s := pgtest.Start(t)
		w.addProxies(kind, s.Addr())
		w.rowOrSession(kind == "pgsession")
		if kind == "pgsession" { // nobody can break an advisory lock
			w.addKillWorker()
			w.addStopWorker()
		} else {
			w.addWorkerFaults()
		}
		w.addServerFaults(s)
		w.addFsyncFault(shim, s)
		w.addFault("kill-session", func(time.Duration) {
			w.logFault("kill-session", "", func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				conn, err := pgx.Connect(ctx, s.URL())
				if err != nil {
					w.t.Errorf("connect to end sessions: %v", err)
					return
				}
				defer conn.Close(ctx)
				_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
				if err != nil {
					w.t.Errorf("end sessions: %v", err)
				}
			})
		})
	}
}

func startMySQL(w *world) {
	t, shim := newShim(w.t)
	s := mysqltest.Start(t)
	w.addProxies("mysql", s.Addr())
	w.rowOrSession(false)
	w.addWorkerFaults()
	w.addServerFaults(s)
	w.addFsyncFault(shim, s)
	w.addFault("kill-session", func(time.Duration) {
		w.logFault("kill-session", "", func() { killMySQL(w, s.DSN()) })
	})
}

// killMySQL ends half of the other sessions.
func killMySQL(w *world, dsn string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		w.t.Errorf("connect to end sessions: %v", err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = ? AND id <> CONNECTION_ID()", mysqltest.User)
	if err != nil {
		w.t.Errorf("list sessions: %v", err)
		return
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			w.t.Errorf("list sessions: %v", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		w.t.Errorf("list sessions: %v", err)
	}
	w.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:(len(ids)+1)/2] {
		_, _ = db.ExecContext(ctx, "KILL ?", id) // it may have ended
	}
}

func startPGClock(way direction) func(*world) {
	return startSQLClock("pg", func(t testing.TB) sqlServer { return pgtest.Start(t) }, way)
}

func startMySQLClock(way direction) func(*world) {
	return startSQLClock("mysql", func(t testing.TB) sqlServer { return mysqltest.Start(t) }, way)
}

type sqlServer interface {
	crashableServer
	Addr() string
}

func startSQLClock(kind string, start func(testing.TB) sqlServer, way direction) func(*world) {
	return func(w *world) {
		t, c := newShim(w.t)
		s := start(t)
		w.addProxies(kind, s.Addr())
		w.Mixed = true
		w.addClockStep(c, way)
		if way == back {
			w.addKillWorker()
		}
		w.keepRunning(s)
	}
}
