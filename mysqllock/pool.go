package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
)

// maxConns is how many connections are used at once for each purpose.
const maxConns = 8

// maxIdle is how many connections there may be, so all of them may be idle.
const maxIdle = 3*maxConns + 2

// maxIdleTime is for how long an idle connection stays open, as in the pool of pglock. The one that
// was used last is used first, so a process that holds few locks soon has one. It needs that on a
// server without a connection left, even if it renews seldom.
const maxIdleTime = 30 * time.Minute

// maxLockWait is how long a statement waits for a row that others have locked, before it starts
// over.
const maxLockWait = 3 * time.Second

// plainVariable matches the names that the program's configuration may set. "@@sql_mode", or a name
// with a space, would set a variable again that the pool sets, in any order.
var plainVariable = regexp.MustCompile(`^[a-z0-9_]+$`)

// newPool returns the pool of a driver: it connects as the program does, and nobody else uses it.
// In a shared pool a renewal would wait for the program's own queries, and a few slow ones would
// lose all its locks. Semaphores bound its size, so that nobody waits in it.
func newPool(program *mysql.Config) (*sql.DB, error) {
	conf := program.Clone()
	conf.Params = map[string]string{}
	for name, value := range program.Params {
		if name = strings.ToLower(name); !plainVariable.MatchString(name) {
			return nil, driver.Invalidf("config: the parameter %q must be the plain name of a system variable", name)
		}
		conf.Params[name] = value
	}
	conf.Params["autocommit"], conf.Params["max_statement_time"] = "1", "0" // our own contexts limit the time
	conf.Params["innodb_lock_wait_timeout"] = fmt.Sprint(maxLockWait.Seconds())
	conf.Params["sql_mode"] = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
	conf.Params["sql_select_limit"] = "18446744073709551615" // a live waiter that is not read counts as dead
	conf.Params["sql_big_selects"], conf.Params["sql_safe_updates"] = "1", "0"
	// These would set sql_big_selects to 0, stop the clock, keep locks from replicas or nodes, and
	// refuse writes.
	for _, name := range []string{"max_join_size", "timestamp", "sql_log_bin", "skip_replication", "wsrep_on",
		"tx_read_only", "transaction_read_only"} {
		delete(conf.Params, name)
	}
	// These would end each watch, and hide error 1290.
	conf.ReadTimeout, conf.WriteTimeout, conf.RejectReadOnly = 0, 0, false
	connector, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, driver.Invalidf("config: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(maxIdle)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}

// A semaphore bounds how many connections are used at once for one purpose.
type semaphore chan struct{}

// enter waits until there is room, and returns a function that makes room again.
func (s semaphore) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

// drain waits until all that have entered have left, for a time at most.
func (s semaphore) drain(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for range cap(s) {
		leave, err := s.enter(ctx)
		if err != nil {
			return
		}
		defer leave()
	}
}

type admittedKey struct{}

// admitted marks the statements of a call that need not enter the semaphore of the others.
func admitted(ctx context.Context) context.Context {
	return context.WithValue(ctx, admittedKey{}, true)
}

func isAdmitted(ctx context.Context) bool { return ctx.Value(admittedKey{}) != nil }

// admit is enter for a call, whose statements it marks.
func (s semaphore) admit(ctx context.Context) (_ context.Context, leave func(), err error) {
	leave, err = s.enter(ctx)
	return admitted(ctx), leave, err
}
