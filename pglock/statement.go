package pglock

import (
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

// The statements are in the files of the folder sql, one in each; the session_*.sql are those of
// [Session]. One row stores all that is known of a lock. Each change is one statement that locks
// the row before it reads it: ON CONFLICT DO UPDATE, and UPDATE at READ COMMITTED, compute the
// new row from the newest one. They read the clock after that, with clock_timestamp, because the
// statement may have begun long before.
//
// Holders and waiters are arrays of objects, in the order of their arrival. See [entry] for the
// fields. In all files, l is the row, e an entry, and c.now the time.

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are the statements for one table. The field TakeOne is in sql/take_one.sql.
type statements struct {
	Schema, Examine                       string
	TakeOne, TakeAll, Acquire             string
	FreeOne, FreeAll, Release, BreakLease string
	Renew, SetHolder, NextToken           string
	RemoveEntry, Withdraw                 string
	Read, Verify, Heartbeat               string
	List, Prune, SetFloor                 string
	LockRow, Current                      string
}

func newStatements(table pgx.Identifier) statements {
	life := fmt.Sprint(rows.HeartbeatTimeout.Microseconds())
	return rows.Statements[statements](sqlFiles, map[string]string{"table": table.Sanitize(), "life": life})
}

// all and unlocked complete the statements Renew and Heartbeat, which wait for the rows that others
// have locked, or skip them.
func all(sql string) string      { return strings.Replace(sql, "[skip]", "", 1) }
func unlocked(sql string) string { return strings.Replace(sql, "[skip]", "SKIP LOCKED", 1) }

// sessionStatements are the statements of sessions.
type sessionStatements struct{ SessionSetUp, SessionAsk, SessionStatus string }

func newSessionStatements() sessionStatements {
	return rows.Statements[sessionStatements](sqlFiles, nil)
}
