//go:build linux

package nemesis

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// A replicated is a primary and a replica that can replace it.
type replicated interface {
	addr() string
	kill()       // the primary
	promote()    // the replica
	addReplica() // starts a replica of the new primary
}

// addPromotion adds the fault that a primary dies and its replica replaces it. If lags is
// set, the replica lacks the latest changes.
func (w *world) addPromotion(r replicated, link *livetest.Proxy, lags bool) {
	w.t.Helper()
	clients := livetest.NewProxy(w.t, r.addr())
	w.setAddrs(clients.Addr())
	w.addFault("promote", func(duration time.Duration) {
		w.logFault("promote", "", func() {
			heal := func() {}
			if lags {
				heal = link.Sever()
				w.waitDuringFault(duration)
			}
			r.kill()
			heal()
			r.promote()
			clients.Redirect(r.addr())
			clients.Cut()
			r.addReplica()
		})
	})
}

// setAddrs sets the addresses at which all processes reach the store.
func (w *world) setAddrs(addrs ...string) {
	w.Store.Addrs = addrs
	w.direct = w.Store
}

func startPromotePG(lags bool) func(*world) {
	return func(w *world) {
		p := &postgres{t: w.t, synchronous: !lags, primary: pgtest.Start(w.t)}
		p.link = livetest.NewProxy(w.t, p.primary.Addr())
		p.addReplica()
		w.Store.Kind, w.Mixed = "pg", true
		w.addWorkerFaults()
		w.addPromotion(p, p.link, lags)
	}
}

func startPromoteMySQL(lags bool) func(*world) {
	return func(w *world) {
		m := &mariadb{t: w.t, synchronous: !lags}
		m.primary = m.start()
		m.link = livetest.NewProxy(w.t, m.primary.Addr())
		m.addReplica()
		w.Store.Kind, w.Mixed = "mysql", true
		w.addWorkerFaults()
		w.addPromotion(m, m.link, lags)
	}
}

// A postgres is a replicated PostgreSQL.
type postgres struct {
	t                testing.TB
	synchronous      bool // a commit waits until the standby has it
	primary, standby *pgtest.Server
	link             *livetest.Proxy // from the standby to the primary
}

func (p *postgres) addr() string { return p.primary.Addr() }
func (p *postgres) kill()        { p.primary.Kill() }

func (p *postgres) promote() {
	p.t.Helper()
	p.exec(p.standby, "SELECT pg_promote()")
	p.primary = p.standby
}

func (p *postgres) addReplica() {
	p.t.Helper()
	p.link.Redirect(p.primary.Addr())
	p.standby = pgtest.Standby(p.t, p.link.Addr())
	if p.synchronous {
		p.exec(p.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	}
}

func (p *postgres) exec(s *pgtest.Server, statements ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		p.t.Fatalf("connect to %s: %v", s.Addr(), err)
	}
	defer conn.Close(ctx)
	for _, text := range statements {
		if _, err := conn.Exec(ctx, text); err != nil {
			p.t.Fatalf("%s: %v", text, err)
		}
	}
}

// A mariadb is a replicated MariaDB.
type mariadb struct {
	t                testing.TB
	synchronous      bool // a commit waits until the replica has it
	servers          int
	primary, replica *mysqltest.Server
	link             *livetest.Proxy // from the replica to the primary
}

func (m *mariadb) addr() string { return m.primary.Addr() }
func (m *mariadb) kill()        { m.primary.Kill() }

func (m *mariadb) start() *mysqltest.Server {
	m.t.Helper()
	m.servers++
	return mysqltest.Start(m.t, fmt.Sprintf("server-id=%d", m.servers), "log-bin=log", "log-slave-updates=on", "binlog-format=row",
		"slave-net-timeout=5",
		// Processes are killed here, and not the machine: what is written need not be on the disk. A
		// new replica carries out the whole log, and would take minutes.
		"sync-binlog=0", "innodb-flush-log-at-trx-commit=2")
}

// promote lets the replica apply what it has received, and then makes it the primary.
func (m *mariadb) promote() {
	m.t.Helper()
	db := m.open(m.replica)
	defer db.Close()
	m.exec(db, "STOP SLAVE IO_THREAD")
	m.awaitCaughtUp(db)
	m.exec(db, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL rpl_semi_sync_slave_enabled = OFF")
	m.primary = m.replica
}

// awaitCaughtUp waits until the replica, which receives nothing any more, has carried out all whole
// transactions that it has received. It fails if the replica does not get on.
func (m *mariadb) awaitCaughtUp(db *sql.DB) {
	m.t.Helper()
	for caughtUp, last := false, ""; !caughtUp; {
		livetest.Await(m.t, "replica that carries out what it has received", func() error {
			status, err := slaveStatus(db)
			if err != nil {
				return err
			}
			// The last transaction may lack its end, so positions don't tell.
			state, done := status["Slave_SQL_Running_State"], status["Relay_Master_Log_File"]+" "+status["Exec_Master_Log_Pos"]
			if caughtUp = strings.HasPrefix(state, "Slave has read all relay log"); !caughtUp && done == last {
				return fmt.Errorf("it has carried out %s, and is in the state %q", done, state)
			}
			last = done
			return nil
		})
	}
}

// addReplica starts a replica, which applies the whole log of the primary. If m.synchronous is
// set, commits wait for the replica from then on.
func (m *mariadb) addReplica() {
	m.t.Helper()
	m.link.Redirect(m.primary.Addr())
	m.replica = m.start()
	db := m.open(m.replica)
	defer db.Close()
	host, port, err := net.SplitHostPort(m.link.Addr())
	if err != nil {
		m.t.Fatal(err)
	}
	m.exec(db, "SET GLOBAL rpl_semi_sync_slave_enabled = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
			host, port, mysqltest.User, mysqltest.Password()),
		"START SLAVE")
	livetest.Await(m.t, "replica that follows", func() error {
		status, err := slaveStatus(db)
		if err == nil && (status["Slave_IO_Running"] != "Yes" || status["Slave_SQL_Running"] != "Yes") {
			err = errors.New(status["Slave_IO_Running"] + " " + status["Slave_SQL_Running"] + " " + status["Last_Error"] +
				status["Last_IO_Error"])
		}
		return err
	})
	if m.synchronous {
		primary := m.open(m.primary)
		defer primary.Close()
		m.exec(primary, "SET GLOBAL rpl_semi_sync_master_timeout = 3600000", "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
			"SET GLOBAL rpl_semi_sync_master_enabled = ON")
	}
}

func (m *mariadb) open(s *mysqltest.Server) *sql.DB {
	m.t.Helper()
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		m.t.Fatal(err)
	}
	return db
}

func (m *mariadb) exec(db *sql.DB, statements ...string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	for _, text := range statements {
		if _, err := db.ExecContext(ctx, text); err != nil {
			m.t.Fatalf("%s: %v", text, err)
		}
	}
}

// slaveStatus returns the answer of SHOW SLAVE STATUS.
func slaveStatus(db *sql.DB) (map[string]string, error) {
	rows, err := db.Query("SHOW SLAVE STATUS")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if !rows.Next() {
		return nil, errors.New("it is no replica")
	}
	values, places := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		places[i] = &values[i]
	}
	if err := rows.Scan(places...); err != nil {
		return nil, err
	}
	status := map[string]string{}
	for i, name := range names {
		status[name] = values[i].String
	}
	return status, rows.Err()
}
