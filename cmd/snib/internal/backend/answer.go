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

// Denied reports whether a server said that we may not do this.
func Denied(err error) bool {
	if postgresSays(err, "28") || postgresSays(err, "42501") || mySQLSays(err, 1044, 1045, 1142, 1143) || zooKeeperDenied(err) || etcdDenied(err) { // who we are, and what we may do
		return true
	}
	answer, raw := new(redislock.ReplyError), new(rueidis.RedisError)
	if errors.As(err, &raw) {
		answer.Text = raw.Error()
	}
	return (errors.As(err, &answer) || answer.Text != "") &&
		(has(answer.Text, "NOAUTH", "WRONGPASS", "NOPERM", "DENIED") || strings.Contains(answer.Text, "The user executing the script can't"))
}

// Answered reports whether an error is what a store said, in its own words, and not that it was out of reach or said nothing. A store
// that says only that it can't serve now is as good as silent.
func Answered(err error) bool {
	var etcd rpctypes.EtcdError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &etcd):
		return etcd.Code() != codes.Unavailable && etcd.Code() != codes.DeadlineExceeded
	case postgresSays(err, ""):
		return !postgresSays(err, "57P") // it shuts down, or starts
	}
	return errors.As(err, new(*redislock.ReplyError)) || errors.As(err, new(*rueidis.RedisError)) || errors.As(err, new(*mysql.MySQLError))
}
