package pglock

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a driver works.
type Option struct {
	name, only string // only is the function that takes it, or "" for both
	set        func(*config) error
}

// Table names the table, after its schema and a dot if it has one: "locks", "infra.locks". All
// processes that are to exclude one another must name the same table. The default is snib_locks,
// where search_path finds it. Only [New] takes it.
func Table(name string) Option {
	return Option{"Table", "New", func(c *config) error {
		parts := strings.Split(name, ".")
		for _, part := range parts {
			if part == "" || len(part) > 63 || strings.ContainsRune(part, 0) {
				return driver.Invalidf("table %q: it is a name of at most 63 bytes, or a schema, a dot and a name", name)
			}
		}
		if len(parts) > 2 {
			return driver.Invalidf("table %q: there is more than one dot in it", name)
		}
		c.table = pgx.Identifier(parts)
		return nil
	}}
}

// Listen says how to connect to the server itself if the pool leads through a pooler in
// transaction mode, which does not pass notifications on. The driver opens one such connection,
// and keeps it only while a caller waits or holds. A [NewSession] opens all its sessions so. The
// BeforeConnect of the pool is called for these connections, too: it may set a new password.
//
// By default the driver connects as the pool does. If it finds a pooler there, it polls instead:
// one statement every 125 ms for all waiters of the process, so that a hand-over takes up to that
// time. A nil configuration is a [driver.ErrInvalid].
func Listen(direct *pgx.ConnConfig) Option {
	return Option{"Listen", "", func(c *config) error {
		if direct == nil {
			return driver.Invalidf("configuration to listen with: it is nil")
		}
		c.listen = direct.Copy()
		return nil
	}}
}

// Timeout sets how long the session of a holder that died or was cut off must be silent before
// the server ends it. The default is 15 seconds. Less than 100 ms, or more than a day, is a
// [driver.ErrInvalid]. Only [NewSession] takes it.
func Timeout(d time.Duration) Option {
	return Option{"Timeout", "NewSession", func(c *config) error {
		if d < 100*time.Millisecond || d > 24*time.Hour {
			return driver.Invalidf("session timeout %v: it is 100 ms to a day", d)
		}
		c.sessionTimeout = d.Truncate(time.Millisecond)
		return nil
	}}
}

// Keys sets how names become advisory locks, so that other programs that take the same ones with
// pg_advisory_lock(bigint) are excluded too. The default is [NameKey]. Two names with the same
// key are one lock. Only [NewSession] takes it.
func Keys(key func(name string) int64) Option {
	return Option{"Keys", "NewSession", func(c *config) error {
		if key == nil {
			return driver.Invalidf("function for keys: it is nil")
		}
		c.key = key
		return nil
	}}
}

// NameKey returns the number of the advisory lock of a name, unless [Keys] sets another: the
// first 64 bits, big-endian, of the SHA-256 of "snib/1:" and the name, as a signed number.
func NameKey(name string) int64 {
	sum := sha256.Sum256([]byte("snib/1:" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
