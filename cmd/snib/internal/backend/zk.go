package backend

import (
	"cmp"
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/zklock"
)

func (u *serverURL) openZooKeeper(ctx context.Context) (driver.Driver, error) {
	opts, err := u.zooKeeperOptions()
	if err != nil {
		return nil, err
	}
	d, err := zklock.New(u.hosts, opts...)
	if err != nil {
		return nil, err
	}
	// This connects, for at most the dial timeout, and checks the root. A command that may wait opens
	// the store again.
	if _, _, err := d.SessionTimeout(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return &zooKeeperStore{d, u}, nil
}

// zooKeeperOptions reads the files that the URL names, and returns how to connect.
func (u *serverURL) zooKeeperOptions() ([]zklock.Option, error) {
	password, secure, err := u.credentials()
	if err != nil {
		return nil, err
	}
	opts := []zklock.Option{zklock.DialTimeout(cmp.Or(u.dialTimeout, defaultDialTimeout))}
	if u.user != "" {
		opts = append(opts, zklock.Digest(u.user, password))
	}
	if secure != nil {
		opts = append(opts, zklock.TLS(secure))
	}
	if u.root != "" {
		opts = append(opts, zklock.Root(u.root))
	}
	return append(opts, u.zk...), nil
}

// zooKeeperDenied reports whether ZooKeeper refused us for lack of permission.
func zooKeeperDenied(err error) bool {
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed)
}
