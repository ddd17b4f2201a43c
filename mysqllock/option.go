package mysqllock

import (
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a driver works.
type Option struct{ set func(*config) error }

func (o Option) apply(c *config) error {
	if o.set == nil {
		return driver.Invalidf("option: the zero Option")
	}
	return o.set(c)
}

// Table names the table, after its database and a dot if that is not the database of the
// connection: "locks", "infra.locks". All processes that are to exclude one another must name the
// same table. The default is snib_locks, and snib_sessions for [NewSession].
func Table(name string) Option {
	return Option{func(c *config) error {
		table, err := quote(name)
		c.table = table
		c.database, c.tableName, _ = strings.Cut(name, ".")
		if c.tableName == "" {
			c.database, c.tableName = "", name
		}
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

// Timeout sets how long the session of a holder that died or was cut off must be silent before
// the server ends it, in whole seconds, because the server counts those. The default is 15
// seconds. Less than one second, or more than a day, is a [driver.ErrInvalid]. Only [NewSession]
// takes it.
func Timeout(d time.Duration) Option {
	return Option{func(c *config) error {
		if d < time.Second || d > 24*time.Hour || d%time.Second != 0 {
			return driver.Invalidf("session timeout %v: it is 1 s to a day, in whole seconds", d)
		}
		c.sessionTimeout, c.sessionOption = d, "Timeout"
		return nil
	}}
}

// Keys sets how names become the names that GET_LOCK locks, so that other programs that use the
// same ones are excluded too: [DotNetKey], or your own function. The default is [NameKey]. Two
// names with the same key are one lock. Only [NewSession] takes it.
func Keys(key func(name string) string) Option {
	return Option{func(c *config) error {
		if key == nil {
			return driver.Invalidf("function for keys: it is nil")
		}
		c.key, c.sessionOption = key, "Keys"
		return nil
	}}
}

// Connections sets how many connections of db the driver uses at once for acquisitions, for
// releases and for renewals each, however many goroutines call it. The default is 8. With three
// more, to watch, to send heartbeats and to hold a session, the driver uses at most 3 n + 3
// connections. Less than one is a [driver.ErrInvalid].
func Connections(n int) Option {
	return Option{func(c *config) error {
		if n < 1 {
			return driver.Invalidf("number of connections %d: it is at least 1", n)
		}
		c.connections = n
		return nil
	}}
}
