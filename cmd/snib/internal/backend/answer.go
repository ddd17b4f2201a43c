package backend

import (
	"context"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/rueidis"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/sniblock/snib/redislock"
)

// Denied reports whether a server refused a request because its user has no valid login, or no
// permission.
func Denied(err error) bool {
	// The codes are about authentication and permissions.
	if isPostgresError(err, "28") || isPostgresError(err, "42501") || isMySQLError(err, 1044, 1045, 1142, 1143) || zooKeeperDenied(err) || etcdDenied(err) {
		return true
	}
	reply, raw := new(redislock.ReplyError), new(rueidis.RedisError)
	if errors.As(err, &raw) {
		reply.Text = raw.Error()
	}
	return (errors.As(err, &reply) || reply.Text != "") &&
		(hasKind(reply.Text, "NOAUTH", "WRONGPASS", "NOPERM", "DENIED") || strings.Contains(reply.Text, "The user executing the script can't"))
}

// Answered reports whether err is an answer of the store. It is false if the store could not be
// reached, did not answer, or answered only that it can't serve requests now.
func Answered(err error) bool {
	var etcd rpctypes.EtcdError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &etcd):
		return etcd.Code() != codes.Unavailable && etcd.Code() != codes.DeadlineExceeded
	case isPostgresError(err, ""):
		return !isPostgresError(err, "57P") // it is shutting down or starting
	}
	return errors.As(err, new(*redislock.ReplyError)) || errors.As(err, new(*rueidis.RedisError)) || errors.As(err, new(*mysql.MySQLError))
}
