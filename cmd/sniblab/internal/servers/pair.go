package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver
	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// A Pair is a primary and the replica that replaces it.
type Pair struct {
	Primary Server

	synchronous bool            // a commit waits until the replica has it
	link        *livetest.Proxy // from the replica to the primary
	promote     func()          // makes the replica the primary
	addReplica  func()          // starts a replica of the primary
}

// Failover kills the primary, and makes the replica the primary. Unless it is synchronous, the
// replica has not heard of the latest changes. Hold is called with what makes the primary fail; it
// may first have a client acquire a lock. Moved is called when another server is the primary.
func (p *Pair) Failover(moved func(), hold func(fail func())) {
	heal := func() {}
	if !p.synchronous {
		heal = p.link.Sever()
	}
	hold(func() {
		p.Primary.Kill()
		heal()
		p.promote()
		moved()
	})
	p.addReplica()
}

// PostgresPair starts a PostgreSQL server with a standby.
func PostgresPair(t testing.TB, synchronous bool) *Pair {
	t.Helper()
	primary := pgtest.Start(t)
	var standby *pgtest.Server
	p := &Pair{Primary: primary, synchronous: synchronous, link: livetest.NewProxy(t, primary.Addr())}
	exec := func(s *pgtest.Server, statements ...string) {
		livetest.Must(t, ExecPostgres(s.URL(), statements...), "replicate PostgreSQL")
	}
	p.addReplica = func() {
		p.link.Redirect(p.Primary.Addr())
		standby = pgtest.Standby(t, p.link.Addr())
		if synchronous {
			exec(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
		}
	}
	p.promote = func() {
		exec(standby, "SELECT pg_promote()")
		primary, p.Primary = standby, standby
		if synchronous { // it has inherited the setting, and has no standby yet
			exec(primary, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
		}
	}
	p.addReplica()
	return p
}

// ExecPostgres executes statements on a PostgreSQL server.
func ExecPostgres(url string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // all statements are done
	for _, text := range statements {
		if _, err := conn.Exec(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// ExecMySQL executes statements on a MariaDB server.
func ExecMySQL(dsn string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // all statements are done
	for _, text := range statements {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", strings.Fields(text)[0], err) // the text may have a password
		}
	}
	return nil
}

// A mariadb is a MariaDB with a replica.
type mariadb struct {
	*Pair
	t                testing.TB
	started          int // so many servers
	current, replica *mysqltest.Server
}

// MySQLPair starts a MariaDB with a replica.
func MySQLPair(t testing.TB, synchronous bool) *Pair {
	t.Helper()
	m := &mariadb{t: t}
	m.current = m.start()
	m.Pair = &Pair{
		Primary: m.current, synchronous: synchronous, link: livetest.NewProxy(t, m.current.Addr()),
		promote: m.makePrimary, addReplica: m.follow,
	}
	m.follow()
	return m.Pair
}

func (m *mariadb) start() *mysqltest.Server {
	m.started++
	return mysqltest.Start(m.t, fmt.Sprintf("server-id=%d", m.started), "log-bin=log", "log-slave-updates=on", "binlog-format=row", "slave-net-timeout=5",
		// Processes are killed here, and not the machine: what is written need not be on the disk. A
		// new replica carries out the whole log, and would take minutes.
		"sync-binlog=0", "innodb-flush-log-at-trx-commit=2")
}

// makePrimary lets the replica carry out what it has received, and then makes it the primary.
func (m *mariadb) makePrimary() {
	m.exec(m.replica, "STOP SLAVE IO_THREAD")
	m.awaitCaughtUp()
	m.exec(m.replica, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL rpl_semi_sync_slave_enabled = OFF")
	m.current, m.Primary = m.replica, m.replica
}

// awaitCaughtUp waits until the replica, which receives nothing any more, has carried out all whole
// transactions that it has received. It fails if the replica does not get on.
func (m *mariadb) awaitCaughtUp() {
	for caughtUp, last := false, ""; !caughtUp; {
		livetest.Await(m.t, "replica that carries out what it has received", func() error {
			status, err := m.status()
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

// follow starts a replica of the primary.
func (m *mariadb) follow() {
	m.link.Redirect(m.current.Addr())
	m.replica = m.start()
	host, port, err := net.SplitHostPort(m.link.Addr())
	livetest.Must(m.t, err, "address of a proxy")
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
	livetest.Must(m.t, ExecMySQL(s.DSN(), statements...), "replicate MariaDB")
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
