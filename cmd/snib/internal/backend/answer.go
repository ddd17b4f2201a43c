package backend

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/rueidis"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/rediskit"
)

// Denied reports whether a server refused a request because its user has no valid login, or no
// permission.
func Denied(err error) bool {
	// The codes are about authentication and permissions.
	if isPostgresError(err, "28") || isPostgresError(err, "42501") || isMySQLError(err, 1044, 1045, 1142, 1143) || zooKeeperDenied(err) || etcdDenied(err) || serviceDenied(err) {
		return true
	}
	reply, raw, refused := new(redislock.ReplyError), new(rueidis.RedisError), rediskit.Refusal("")
	switch {
	case errors.As(err, &reply):
		return rediskit.IsDenied(reply.Text)
	case errors.As(err, &raw):
		return rediskit.IsDenied(raw.Error())
	}
	return errors.As(err, &refused) && rediskit.IsDenied(string(refused))
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
	return errors.As(err, new(*redislock.ReplyError)) || errors.As(err, new(*rueidis.RedisError)) ||
		errors.As(err, new(rediskit.Refusal)) || errors.As(err, new(*mysql.MySQLError))
}
