package zklock

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/zklock/zkadmin"
)

// Admin returns what is for people who operate the ensemble.
func (d *Driver) Admin() zkadmin.Admin { return admin{d} }

type admin struct{ *Driver }

// Ensemble implements [zkadmin.Admin].
func (d admin) Ensemble(ctx context.Context) (zkadmin.Ensemble, error) {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return zkadmin.Ensemble{}, err
	}
	defer done()
	e := zkadmin.Ensemble{Asked: d.conf.timeout, Granted: s.negotiatedTimeout()}
	conf, _, err := do(ctx, s, func(conn *zk.Conn) ([]byte, error) {
		data, _, err := conn.Get("/zookeeper/config")
		return data, err
	})
	if err != nil && !isHidden(err) {
		return zkadmin.Ensemble{}, err
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
		return zkadmin.Ensemble{}, err
	}
	return e, nil
}

// isHidden reports whether a server said that a node does not exist, or that we may not
// read it.
func isHidden(err error) bool { return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) }
