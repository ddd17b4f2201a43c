package trial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// A pair is a primary and the replica that replaces it.
type pair struct {
	synchronous bool            // a commit waits until the replica has it
	link        *livetest.Proxy // from the replica to the primary
	servers     *servers
	primary     server
	promote     func()        // makes the replica the primary
	address     func() string // of the primary
	addReplica  func()
}

// failover kills the primary, and makes the replica the primary. Unless it is synchronous, the
// replica has not heard of the latest changes.
func (p *pair) failover(hold func(func())) {
	heal := func() {}
	if !p.synchronous {
		heal = p.link.Sever()
	}
	hold(func() {
		p.primary.Kill()
		heal()
		p.promote()
		p.servers.addrs[0] = p.address()
		p.servers.moved()
	})
	p.addReplica()
}

// startReplicatedPostgres returns how to start a primary with a standby.
func startReplicatedPostgres(synchronous bool) func(testing.TB) *servers {
	return func(t testing.TB) *servers {
		settings := statementStats(t)
		primary := pgtest.Start(t, settings...)
		var standby *pgtest.Server
		p := &pair{synchronous: synchronous, link: livetest.NewProxy(t, primary.Addr()), primary: primary}
		exec := func(s *pgtest.Server, statements ...string) {
			if err := execPostgres(s.Addr(), "postgres", statements...); err != nil {
				t.Fatalf("replicate PostgreSQL: %v", err)
			}
		}
		p.address = func() string { return primary.Addr() }
		p.addReplica = func() {
			p.link.Redirect(primary.Addr())
			standby = pgtest.Standby(t, p.link.Addr(), settings...)
			if synchronous {
				exec(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
			}
		}
		p.promote = func() {
			exec(standby, "SELECT pg_promote()")
			primary, p.primary = standby, standby
			if synchronous { // it has inherited the setting, and has no standby yet
				exec(primary, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
			}
		}
		count := countPostgres(t, p.address) // before there is a standby, which gets the extension with all else
		p.addReplica()
		p.servers = &servers{
			addrs: []string{primary.Addr()}, hit: func(*rand.Rand) server { return p.primary },
			failover: p.failover, count: count,
			clear: func(c Target) { emptyPostgres(t, primary.Addr(), c) },
		}
		return p.servers
	}
}

// A mariadb is a MariaDB with a replica.
type mariadb struct {
	pair
	t                testing.TB
	started          int // so many servers
	current, replica *mysqltest.Server
}

// startReplicatedMySQL returns how to start a MariaDB with a replica.
func startReplicatedMySQL(synchronous bool) func(testing.TB) *servers {
	return func(t testing.TB) *servers {
		m := &mariadb{t: t}
		m.current = m.start()
		m.pair = pair{
			synchronous: synchronous, link: livetest.NewProxy(t, m.current.Addr()), primary: m.current,
			promote: m.makePrimary, address: func() string { return m.current.Addr() }, addReplica: m.follow,
		}
		m.follow()
		m.servers = &servers{
			addrs: []string{m.current.Addr()}, hit: func(*rand.Rand) server { return m.current }, failover: m.failover,
			count: countMySQL(t, func(params ...string) string { return m.current.DSN(params...) }),
		}
		return m.servers
	}
}

func (m *mariadb) start() *mysqltest.Server {
	m.started++
	return mysqltest.Start(m.t, fmt.Sprintf("server-id=%d", m.started), "log-bin=log", "log-slave-updates=on", "binlog-format=row", "slave-net-timeout=5",
		// Processes are killed here, and not the machine: what is written need not be on the disk.
		"sync-binlog=0", "innodb-flush-log-at-trx-commit=2")
}

// makePrimary lets the replica carry out what it has received, and then makes it the primary.
func (m *mariadb) makePrimary() {
	m.exec(m.replica, "STOP SLAVE IO_THREAD")
	livetest.Await(m.t, "replica that carries out what it has received", func() error {
		status, err := m.status()
		// The last transaction may lack its end, so positions don't tell.
		if state := status["Slave_SQL_Running_State"]; err == nil && !strings.HasPrefix(state, "Slave has read all relay log") {
			err = errors.New("it is in the state " + state)
		}
		return err
	})
	m.exec(m.replica, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL rpl_semi_sync_slave_enabled = OFF")
	m.current, m.primary = m.replica, m.replica
}

// follow starts a replica of the primary.
func (m *mariadb) follow() {
	m.link.Redirect(m.current.Addr())
	m.replica = m.start()
	host, port, err := net.SplitHostPort(m.link.Addr())
	if err != nil {
		m.t.Fatalf("address of a proxy: %v", err)
	}
	m.exec(m.replica, "SET GLOBAL rpl_semi_sync_slave_enabled = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
			host, port, mysqltest.User, mysqltest.Password()),
		"START SLAVE")
	livetest.Await(m.t, "replica that follows", func() error {
		status, err := m.status()
		if err == nil && (status["Slave_IO_Running"] != "Yes" || status["Slave_SQL_Running"] != "Yes") {
			err = errors.New("it says: " + status["Last_Error"] + status["Last_IO_Error"])
		}
		return err
	})
	if m.synchronous {
		m.exec(m.current, "SET GLOBAL rpl_semi_sync_master_timeout = 3600000", "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
			"SET GLOBAL rpl_semi_sync_master_enabled = ON")
	}
}

func (m *mariadb) exec(s *mysqltest.Server, statements ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		m.t.Fatalf("replicate MariaDB: %v", err)
	}
	defer db.Close() //nolint:errcheck // all statements are done
	for _, text := range statements {
		if _, err := db.ExecContext(ctx, text); err != nil {
			m.t.Fatalf("replicate MariaDB: %s: %v", strings.Fields(text)[0], err)
		}
	}
}

// status returns what SHOW SLAVE STATUS says of the replica.
func (m *mariadb) status() (map[string]string, error) {
	db, err := sql.Open("mysql", m.replica.DSN())
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // it has answered
	rows, err := db.Query("SHOW SLAVE STATUS")
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // likewise
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if !rows.Next() {
		return nil, errors.New("it is no replica")
	}
	values, places := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		places[i] = &values[i]
	}
	if err := rows.Scan(places...); err != nil {
		return nil, err
	}
	status := make(map[string]string)
	for i, name := range columns {
		status[name] = values[i].String
	}
	return status, rows.Err()
}
