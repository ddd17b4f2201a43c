package pglock

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
)

// NewSession returns a driver whose locks are PostgreSQL's own advisory locks. All of them belong
// to one session, on one connection beside the pool, and end with that session: at once when the
// process dies, and after [Timeout] when it is stopped or cut off. Other programs that use the
// same advisory locks are excluded as well, see [Keys].
//
// As with [New], a table holds the queue and the tokens; it is called snib_sessions. The driver
// writes it through the pool, which stays the caller's. An exclusive lock that nobody else wants
// has no row in its first 25 ms, and its token is the server's clock; see docs/backends/pglock.md.
//
// Each acquisition refuses a pooler before the server with a [driver.ErrInvalid], unless the
// option [Listen] says how to connect past it, or [SessionPooler] that it does no harm. NewSession
// itself does not contact the server. An option that is invalid is a [driver.ErrInvalid].
func NewSession(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	c, err := newConfig(pool, "snib_sessions", opts)
	if err != nil {
		return nil, err
	}
	return newDriver(pool, c, true), nil
}

// describeSession changes the Info of rows to that of sessions.
func describeSession(info *driver.Info) {
	info.Tenure = driver.TenureSession
	info.MinTTL = 0
	info.Fencing, info.FencingOnDemand = driver.FencingClock, info.Fencing
	info.Assumptions = append([]string{
		"the connection leads to the server itself and not to a pooler in transaction mode",
		"the server is PostgreSQL 14 or later; before, it is told by TCP only that a host has vanished",
		"the server's clock is not set back: it is the token, unless the token is required to be durable",
	}, info.Assumptions[1:]...)
}
