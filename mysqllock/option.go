package mysqllock

import (
	"strings"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a driver works.
type Option struct{ set func(table *string) error }

func (o Option) apply(table *string) error {
	if o.set == nil {
		return driver.Invalidf("option: the zero Option")
	}
	return o.set(table)
}

// defaultTable is the table, quoted, if the option Table names no other.
const defaultTable = "`snib_locks`"

// Table names the table, after its database and a dot if that is not the database of the
// connection: "locks", "infra.locks". All processes that are to exclude one another must name the
// same table. The default is snib_locks.
func Table(name string) Option {
	return Option{func(table *string) (err error) {
		*table, err = quote(name)
		return err
	}}
}

// quote returns the name of a table as it is written in statements.
func quote(name string) (string, error) {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if part == "" || len(part) > 64 || strings.ContainsAny(part, "\x00?") || strings.HasSuffix(part, " ") {
			return "", driver.Invalidf("table %q: it is a name of at most 64 bytes, or a database, a dot and a name", name)
		}
		parts[i] = "`" + strings.ReplaceAll(part, "`", "``") + "`"
	}
	if len(parts) > 2 {
		return "", driver.Invalidf("table %q: there is more than one dot in it", name)
	}
	return strings.Join(parts, "."), nil
}
