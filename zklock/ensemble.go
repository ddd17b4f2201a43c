package zklock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// An Ensemble is what a driver's ensemble says of itself, for people who look for what is wrong with it.
type Ensemble struct {
	// Asked and Granted are the session's timeout: as the options have it, and as the servers do. Granted is never less.
	Asked, Granted time.Duration

	// Members are the lines "server.N=..." of the servers that vote and of others, from the node /zookeeper/config. They are missing
	// where there is only one server, or where they may not be read.
	Members []string

	// ACL says who may do what with the root of the locks, or will be allowed to where it is still to be made. It is nil if it may not be read.
	ACL []zk.ACL
}

// Ensemble asks the ensemble what it is. Errors are those of [Driver.Ping].
func (d *Driver) Ensemble(ctx context.Context) (Ensemble, error) {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return Ensemble{}, err
	}
	defer done()
	e := Ensemble{Asked: d.conf.timeout, Granted: s.granted()}
	conf, _, err := do(ctx, s, func(conn *zk.Conn) ([]byte, error) {
		data, _, err := conn.Get("/zookeeper/config")
		return data, err
	})
	if err != nil && !unknown(err) {
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
	case err != nil && !unknown(err):
		return Ensemble{}, err
	}
	return e, nil
}

// unknown reports whether a server said that there is nothing, or that we may not know.
func unknown(err error) bool { return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) }
