package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgconn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
)

// TestTellsMore checks that findings don't hide that a store is unreachable or denies access,
// but may hide other errors.
func TestTellsMore(t *testing.T) {
	tests := []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{context.DeadlineExceeded, true},
		{io.ErrUnexpectedEOF, true},
		{zk.ErrNoServer, true},
		{errors.New("no answer from etcd"), true},
		{rpctypes.ErrNoLeader, true}, // no service
		{rpctypes.ErrTimeout, true},
		{rpctypes.ErrPermissionDenied, true},
		{rpctypes.ErrAuthFailed, true},
		{rpctypes.ErrNoSpace, false},
		{zk.ErrNoAuth, true},
		{&redislock.ReplyError{Text: "NOPERM this user has no permissions"}, true},
		{&redislock.ReplyError{Text: "OOM command not allowed"}, false},
		{&pgconn.PgError{Code: "57P01"}, true},  // admin_shutdown
		{&pgconn.PgError{Code: "42501"}, true},  // insufficient_privilege
		{&pgconn.PgError{Code: "25006"}, false}, // read_only_sql_transaction
		{&mysql.MySQLError{Number: 1142}, true},
		{&mysql.MySQLError{Number: 1290}, false}, // read only
		{driver.ErrInvalid, false},
		{driver.ErrHeld, false},
	}
	for _, tt := range tests {
		if got := tellsMore(fmt.Errorf("lock: %w", tt.err)); got != tt.want {
			t.Errorf("tellsMore(%T: %v) = %v, want %v", tt.err, tt.err, got, tt.want)
		}
	}
}
