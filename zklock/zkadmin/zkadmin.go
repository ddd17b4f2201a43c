// Package zkadmin is for people who operate a ZooKeeper ensemble in which package zklock keeps
// locks. "snib doctor" is built on it.
package zkadmin

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// An Admin answers questions about an ensemble. The method Admin of a zklock.Driver returns one,
// which uses the driver's session. Only package zklock implements Admin, which may get methods.
type Admin interface {
	// Ensemble asks the servers for a description of the ensemble. Its errors are those of
	// the driver's Ping.
	Ensemble(ctx context.Context) (Ensemble, error)
}

// An Ensemble describes a driver's ensemble.
type Ensemble struct {
	// Asked is the session timeout that the options ask for. Granted is the timeout that
	// the servers use, which is never less.
	Asked, Granted time.Duration

	// Members are the lines "server.N=..." of the node /zookeeper/config, for voting and
	// other servers. They are missing if there is only one server, or if the node may not
	// be read.
	Members []string

	// ACL is the access control list of the root of the locks. If the root does not exist
	// yet, it is the list that the root will get. It is nil if it may not be read.
	ACL []zk.ACL
}
