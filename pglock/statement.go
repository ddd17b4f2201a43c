package pglock

import (
	"embed"
	"fmt"

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

// statements are the statements for one table.
type statements struct {
	schema, examine                            string
	takeOne, takeAll, acquire                  string
	freeOne, freeAll, release, breakLease      string
	renew, renewUnlocked, setHolder, nextToken string
	removeEntry, withdraw                      string
	read, verify, heartbeat, heartbeatUnlocked string
	list, listNames, prune, setFloor           string
	lockRow, current                           string
}

func newStatements(table pgx.Identifier) statements {
	shared := map[string]string{"table": table.Sanitize(), "life": fmt.Sprint(rows.HeartbeatTimeout.Microseconds())}
	text := func(name string, given ...string) string { return rows.Statement(sqlFiles, name, shared, given...) }
	const all, unlocked = "", "SKIP LOCKED"
	return statements{
		schema: text("schema"), examine: text("examine"),
		takeOne: text("take_one"), takeAll: text("take_all"), acquire: text("acquire"),
		freeOne: text("free_one"), freeAll: text("free_all"), release: text("release"), breakLease: text("break_lease"),
		renew: text("renew", "skip", all), renewUnlocked: text("renew", "skip", unlocked),
		setHolder: text("set_holder"), nextToken: text("next_token"), removeEntry: text("remove_entry"),
		withdraw: text("withdraw"),
		read:     text("read"), verify: text("verify"),
		heartbeat:         text("heartbeat", "skip", all),
		heartbeatUnlocked: text("heartbeat", "skip", unlocked),
		list:              text("list"), listNames: text("list_names"), prune: text("prune"), setFloor: text("set_floor"),
		lockRow: text("lock_row"), current: text("current"),
	}
}

// sessionStatements are the statements of sessions.
type sessionStatements struct{ setUp, ask, status string }

func newSessionStatements() sessionStatements {
	text := func(name string) string { return rows.Statement(sqlFiles, "session_"+name, nil) }
	return sessionStatements{setUp: text("set_up"), ask: text("ask"), status: text("status")}
}
