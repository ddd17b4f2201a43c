package zklock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// An Ensemble describes the driver's ensemble, for people who diagnose it.
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

// Ensemble asks the servers for a description of the ensemble. Errors are those of
// [Driver.Ping].
func (d *Driver) Ensemble(ctx context.Context) (Ensemble, error) {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return Ensemble{}, err
	}
	defer done()
	e := Ensemble{Asked: d.conf.timeout, Granted: s.negotiatedTimeout()}
	conf, _, err := do(ctx, s, func(conn *zk.Conn) ([]byte, error) {
		data, _, err := conn.Get("/zookeeper/config")
		return data, err
	})
	if err != nil && !isHidden(err) {
		return Ensemble{}, err
	}
	for line := range strings.Lines(string(conf)) {
		if strings.HasPrefix(line, "server.") {
			e.Members = append(e.Members, strings.TrimSpace(line))
		}
	}
	e.ACL, _, err = do(ctx, s, func(conn *zk.Conn) ([]zk.ACL, error) {
		acl, _, err := conn.GetACL(d.conf.root)
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		e.ACL = d.conf.acl
	case err != nil && !isHidden(err):
		return Ensemble{}, err
	}
	return e, nil
}

// isHidden reports whether a server said that a node does not exist, or that we may not
// read it.
func isHidden(err error) bool { return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) }
