package mysqllock

import (
	"regexp"
	"strings"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a driver works. It is what [Table] returns.
type Option struct{ table string }

// defaultTable is the table, quoted, if the option Table names no other.
const defaultTable = "`snib_locks`"

// Table names the table, after its database and a dot if that is not the database of the
// connection: "locks", "infra.locks". All processes that are to exclude one another must name the
// same table. The default is snib_locks.
func Table(name string) Option { return Option{name} }

// plainName matches names that statements can contain. The server reads other bytes than ASCII in
// the character set of the connection: to another one, they would name another table.
var plainName = regexp.MustCompile("^[A-Za-z0-9_$` -]{0,63}[A-Za-z0-9_$`-]$")

// quote returns the name of a table as it is written in statements.
func quote(name string) (string, error) {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if len(parts) > 2 || !plainName.MatchString(part) {
			return "", driver.Invalidf("table %q: it is a name, or a database, a dot and a name, each of 1 to 64 "+
				"ASCII letters, digits, spaces inside it, and _ $ - `", name)
		}
		parts[i] = "`" + strings.ReplaceAll(part, "`", "``") + "`"
	}
	return strings.Join(parts, "."), nil
}
