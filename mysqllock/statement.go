package mysqllock

import (
	"embed"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

// The statements are in the files of the folder sql. One row stores all that is known of a lock.
// To take a lock, to free it, and to change anything else, the driver decides in Go, and writes the
// row with an UPDATE that finds it only if its version is still the one that the decision is about.
// It reads the row only if this process does not know it, if the row has changed, or if there would
// be nothing to write. So a request that the server executes late changes nothing. And no
// statement leaves a transaction open, which would keep its rows locked until the server notices
// that the client is stopped or cut off. Only renewals of exclusive leases are one UPDATE without
// a read.
//
// Each change gives a row another version, a random number. So no two states of a row have the same
// one, even if a server forgets changes. Holders and waiters are lines: a nonce, a space, an
// [entry] as JSON, a newline.
//
// An expression in SET reads no column that was assigned before it.
//
// Statements that change the rows of [names] have FORCE INDEX. Without it, the server would scan
// the whole table if they are a large part of it, and wait for each row that a transaction has
// locked.

//go:embed sql/*.sql
var files embed.FS

// statements are the statements for a table. The field ReadLive is in sql/read_live.sql. Statements
// with [names] are completed when they are run.
type statements struct {
	Inspect, CreateTable, FillTable               string
	Read, ReadCommitted, ReadLocked, List         string
	Save, Insert, Enqueue, Renew                  string
	Heartbeat, ReadLive, CapProcesses, DeleteRows string
	Stale, Prune, SetFloor, HighestToken          string
	Watch, Called, LockTxRow, Touch, Writable     string
}

// newStatements returns the statements for a table, whose name is quoted.
func newStatements(table string) statements {
	return rows.Statements[statements](files, map[string]string{"table": table})
}
