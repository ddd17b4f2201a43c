package pglock

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
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

// placeholder is the name of another file of the folder, or of a part that is given.
var placeholder = regexp.MustCompile(`\{([a-z]\w*)\}`)

// statement returns the text of sql/name.sql without its comments. Each {part} is the given part of
// this name, or else the text of another file. A file that is missing, and a given part that is not
// used, are mistakes of this package, so statement panics.
func statement(name string, given map[string]string) string {
	used := map[string]bool{}
	text := expand(name, given, used)
	for part := range given {
		if !used[part] {
			panic(fmt.Sprintf("pglock: the statement %s has no part %s", name, part))
		}
	}
	return text
}

func expand(name string, given map[string]string, used map[string]bool) string {
	file, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("pglock: there is neither a statement nor a part of a statement %s", name))
	}
	var lines []string
	for line := range strings.Lines(string(file)) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return placeholder.ReplaceAllStringFunc(strings.TrimSpace(strings.Join(lines, "")), func(match string) string {
		part := strings.Trim(match, "{}")
		if text, ok := given[part]; ok {
			used[part] = true
			return text
		}
		return expand(part, given, used)
	})
}

// statements are the statements for one table.
type statements struct {
	schema, examine                              string
	takeOne, takeAll, acquire, acquirePrechecked string
	freeOne, freeAll, release, breakLease        string
	renew, renewUnlocked, setHolder, nextToken   string
	removeEntry, withdraw                        string
	read, heartbeat, heartbeatUnlocked           string
	list, listNames, prune, setFloor             string
	lockRow, current                             string
}

func newStatements(table pgx.Identifier) statements {
	text := func(name string, given ...string) string {
		parts := map[string]string{"table": table.Sanitize()}
		for i := 0; i < len(given); i += 2 {
			parts[given[i]] = given[i+1]
		}
		return statement(name, parts)
	}
	// The precheck needs the table, too.
	precheck := text("precheck", "life", "$9")
	const all, unlocked = "", "SKIP LOCKED" // rows
	return statements{
		schema: text("schema"), examine: text("examine"),
		takeOne: text("take_one"), takeAll: text("take_all"),
		acquire: text("acquire", "life", "$9", "seen", "", "unless_seen", "", "or_seen", ""),
		acquirePrechecked: text("acquire", "life", "$9", "seen", precheck,
			"unless_seen", expand("unless_refused", nil, nil), "or_seen", expand("or_refused", nil, nil)),
		freeOne: text("free_one"), freeAll: text("free_all"), release: text("release"), breakLease: text("break_lease"),
		renew: text("renew", "skip", all), renewUnlocked: text("renew", "skip", unlocked),
		setHolder: text("set_holder"), nextToken: text("next_token"), removeEntry: text("remove_entry"),
		withdraw:          text("withdraw"),
		read:              text("read"),
		heartbeat:         text("heartbeat", "life", "$3", "skip", all),
		heartbeatUnlocked: text("heartbeat", "life", "$3", "skip", unlocked),
		list:              text("list"), listNames: text("list_names"), prune: text("prune"), setFloor: text("set_floor"),
		lockRow: text("lock_row"), current: text("current"),
	}
}

// sessionStatements are the statements of sessions.
type sessionStatements struct{ setUp, ask, status string }

func newSessionStatements() sessionStatements {
	text := func(name string) string { return statement("session_"+name, nil) }
	return sessionStatements{setUp: text("set_up"), ask: text("ask"), status: text("status")}
}
