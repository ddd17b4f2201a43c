package pglock

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a driver works.
type Option func(*config) error

// Table names the table, with its schema before a dot if it has one: "locks", "infra.locks". All who are to exclude one
// another name the same. The default is snib_locks, and snib_sessions for [NewSession], where search_path finds it.
func Table(name string) Option {
	return func(c *config) error {
		parts := strings.Split(name, ".")
		for _, part := range parts {
			if part == "" || len(part) > 63 || strings.ContainsRune(part, 0) {
				return fmt.Errorf("%w table %q: it is a name of at most 63 bytes, or a schema, a dot and a name",
					driver.ErrInvalid, name)
			}
		}
		if len(parts) > 2 {
			return fmt.Errorf("%w table %q: there is more than one dot in it", driver.ErrInvalid, name)
		}
		c.table = pgx.Identifier(parts)
		return nil
	}
}

// Listen says how to connect to the server itself where the pool leads through a pooler in transaction mode, which
// notifications do not pass. The driver opens one such connection, only while somebody waits.
//
// By default it connects as the pool does. If it finds a pooler there it polls instead: one statement every 125 ms for
// all that wait in the process, so that a hand-over takes up to that time. A configuration that is nil is a
// [driver.ErrInvalid].
func Listen(direct *pgx.ConnConfig) Option {
	return func(c *config) error {
		if direct == nil {
			return fmt.Errorf("%w configuration to listen with: it is nil", driver.ErrInvalid)
		}
		c.listen = direct.Copy()
		return nil
	}
}

// Timeout sets after how much silence the server ends the session of a holder that died or was cut off. The default is
// 15 seconds. Less than 100 ms is a [driver.ErrInvalid]. Only [NewSession] has a use for it.
func Timeout(d time.Duration) Option {
	return func(c *config) error {
		if d < 100*time.Millisecond || d > 24*time.Hour {
			return fmt.Errorf("%w session timeout %v: it is 100 ms to a day", driver.ErrInvalid, d)
		}
		c.idle = d.Truncate(time.Millisecond)
		return nil
	}
}

// SessionPooler says that a pooler stands before the server and gives each client a connection of its own for as long
// as it stays ("session" mode). Without it [NewSession] refuses every pooler: locks that are taken through one in
// transaction mode belong to whoever comes next. Only [NewSession] has a use for it.
func SessionPooler() Option {
	return func(c *config) error {
		c.pooled = true
		return nil
	}
}

// Keys sets how names become advisory locks, so that others who use the same ones are excluded too: [HashText],
// [RubyKey], [DotNetKey], or a function of yours that returns [Wide] or [Pair] keys. The default is [NameKey]. Two names with the same key are one
// lock. Only [NewSession] has a use for it; for [Tx] there is [TxKey].
func Keys(key func(name string) Key) Option {
	return func(c *config) error {
		if key == nil {
			return fmt.Errorf("%w function for keys: it is nil", driver.ErrInvalid)
		}
		c.key = key
		return nil
	}
}
