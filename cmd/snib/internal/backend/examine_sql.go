package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// examinePostgres checks the server that the pool connects to.
func examinePostgres(ctx context.Context, pool *pgxpool.Pool) ([]Finding, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	setting := func(name string) (value string, err error) {
		err = conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
		return value, err
	}
	var values [4]string
	for i, name := range []string{"server_version", "fsync", "full_page_writes", "synchronous_commit"} {
		if values[i], err = setting(name); err != nil {
			return nil, err
		}
	}
	var pid uint32
	var standby, readOnly bool
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'").
		Scan(&pid, &standby, &readOnly)
	if err != nil {
		return nil, err
	}
	all := []Finding{
		{Check: "version", Verdict: Good, Value: "PostgreSQL " + values[0]},
		newFinding("fsync", values[1], values[1] == "on", Unmet, "set fsync on: a crash may undo locks and tokens that were granted"),
		newFinding("full_page_writes", values[2], values[2] == "on", Unmet, "set full_page_writes on: a crash may damage the table of locks"),
		newFinding("synchronous_commit", values[3], values[3] != "off", Unmet, "set it to on for this user: a crash may undo the last grants"),
		newFinding("role", describeRole(standby, readOnly), !standby && !readOnly, Unmet, "name the primary: locks can't be taken here"),
		// A pooler reports a process id of its own.
		newFinding("pooler", describePooler(pid == conn.Conn().PgConn().PID()), pid == conn.Conn().PgConn().PID(), Note,
			"waiters are notified by LISTEN, which a pooler with pool_mode=transaction or statement breaks; connect to the server, or use session"),
	}
	standbys, err := postgresStandbys(ctx, conn)
	if err != nil {
		return nil, err
	}
	clock, err := sqlClock(func() (t time.Time, err error) {
		err = conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&t)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	table, err := examinePostgresTable(ctx, conn)
	all = append(all, standbys, clock, table)
	if err != nil || table.RunsForeignCode() { // even a query may run code of others
		return all, err
	}
	tokens, err := sqlTokens(func(name *string, token, clock *int64) error {
		return conn.QueryRow(ctx, `SELECT name, token, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
			FROM snib_locks ORDER BY token DESC LIMIT 1`).Scan(name, token, clock)
	})
	return append(all, tokens...), err
}

func describeRole(standby, readOnly bool) string {
	switch {
	case standby:
		return "a standby"
	case readOnly:
		return "read only"
	}
	return "primary"
}

func describePooler(direct bool) string {
	if direct {
		return "none"
	}
	return "there is one between snib and the server"
}

// postgresStandbys says whether a standby that may be promoted has all commits.
func postgresStandbys(ctx context.Context, conn *pgxpool.Conn) (Finding, error) {
	var n, known, sync int
	err := conn.QueryRow(ctx, `SELECT count(*), count(sync_state), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))
		FROM pg_stat_replication`).Scan(&n, &known, &sync)
	switch {
	case err != nil:
		return Finding{}, err
	case n == 0:
		return Finding{Check: "standbys", Verdict: Good, Value: "none"}, nil
	case known == 0: // everybody may see the rows, but not their contents
		return Finding{Check: "standbys", Verdict: Note, Value: fmt.Sprintf("%d, but this user may not read their state", n), Advice: "run this as a member of pg_monitor"}, nil
	}
	return newFinding("standbys", fmt.Sprintf("%d, of which %d synchronous", n, sync), sync > 0, Unmet,
		"set synchronous_standby_names: a standby that lacks commits loses locks and tokens when it is promoted"), nil
}

// examineMySQL checks the server that the pool connects to.
func examineMySQL(ctx context.Context, db *sql.DB) ([]Finding, error) {
	var version, flush, binlog, readOnly string
	var logs bool
	err := db.QueryRowContext(ctx, "SELECT version(), @@global.innodb_flush_log_at_trx_commit, @@global.sync_binlog, @@global.log_bin, @@global.read_only").
		Scan(&version, &flush, &binlog, &logs, &readOnly)
	if err != nil {
		return nil, err
	}
	writable := readOnly == "0" || readOnly == "OFF" // as in mysqllock/sql/writable.sql
	all := []Finding{
		{Check: "version", Verdict: Good, Value: version},
		newFinding("innodb_flush_log_at_trx_commit", flush, flush == "1", Unmet, "set it to 1: a crash may undo the last grants"),
		newFinding("role", describeRole(false, !writable), writable, Unmet, "name the server that accepts writes: locks can't be taken here"),
	}
	if logs {
		all = append(all, newFinding("sync_binlog", binlog, binlog == "1", Note, "with 1, no commit is missing in the binary log, and in replicas, after a crash"))
	}
	clock, err := sqlClock(func() (time.Time, error) {
		var micros int64
		err := db.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)").Scan(&micros)
		return time.UnixMicro(micros), err
	})
	if err != nil {
		return all, err
	}
	tokens, err := sqlTokens(func(name *string, token, clock *int64) error {
		return db.QueryRowContext(ctx, `SELECT name, token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
			FROM snib_locks ORDER BY token DESC LIMIT 1`).Scan(name, token, clock)
	})
	return append(append(all, clock), tokens...), err
}

// sqlTokens judges the highest token of the table, which query reads with the name of its row and
// the server's clock. If there is no table of ours, there is no finding.
func sqlTokens(query func(name *string, token, clock *int64) error) ([]Finding, error) {
	var name string
	var token, clock int64
	err := query(&name, &token, &clock)
	switch {
	case isPostgresError(err, "42P01"), isPostgresError(err, "42703"), isMySQLError(err, 1146, 1054),
		errors.Is(err, pgx.ErrNoRows), errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case isPostgresError(err, "42501"), isMySQLError(err, 1142, 1143):
		return []Finding{{Check: "last-token", Verdict: Note, Value: "this user may not read the table of locks", Advice: "run this as a user with SELECT on the table"}}, nil
	case err != nil:
		return nil, err
	}
	f := tokenFinding(uint64(max(token, 0)), uint64(clock), "set column token of this row to the time in microseconds while nobody uses the lock")
	if f.Verdict != Good {
		f.Value += fmt.Sprintf(", in the row %q", name)
	}
	return []Finding{f}, nil
}

// sqlClock compares a database's clock with ours. It asks five times, and uses the fastest
// answer.
func sqlClock(query func() (time.Time, error)) (Finding, error) {
	var ahead, fastest time.Duration
	for i := range 5 {
		sent := time.Now()
		theirs, err := query()
		took := time.Since(sent)
		if err != nil {
			return Finding{}, err
		}
		if i == 0 || took < fastest {
			ahead, fastest = theirs.Sub(sent.Add(took/2)), took
		}
	}
	return clockFinding(ahead, fastest, "leases end by the server's clock, and it orders tokens after a loss of memory"), nil
}
