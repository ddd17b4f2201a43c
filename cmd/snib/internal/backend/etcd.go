package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
)

// An etcdKind is one of the schemes of etcd. Its URLs have the same form as those of ZooKeeper.
type etcdKind struct{ zkKind }

var (
	etcd = etcdKind{zkKind{urlKind{
		scheme: "etcd", syntax: "etcd://[USER:PASSWORD@]HOST[:PORT],...", port: "2379", manyHosts: true,
	}}}
	secureEtcd = etcdKind{zkKind{urlKind{
		scheme: "etcds", syntax: "etcds://[USER:PASSWORD@]HOST[:PORT],...", port: "2379", manyHosts: true, tls: true,
	}}}
)

// resolve is the resolve function of the [Scheme].
func (k etcdKind) resolve(rest string) (location, error) {
	u, err := k.parse(rest)
	switch {
	case err != nil:
		return location{}, err
	case u.root != "":
		return location{}, k.errorf("it has a path, which etcd does not use; names such as team/deploy distinguish locks")
	case u.keepSuspended || u.readWrite || u.literalNames:
		return location{}, k.errorf("its parameters suspended, curator-read-write and literal-names are for ZooKeeper only")
	}
	return location{url: u.String(), open: func(ctx context.Context) (driver.Driver, error) { return openEtcd(ctx, u) }, transport: u.newTransport("")}, nil
}

// openEtcd returns a driver for etcd. With a user, it contacts the servers and logs in. Without
// one, the first request shows whether they can be reached.
func openEtcd(ctx context.Context, u *zkURL) (driver.Driver, error) {
	password, err := readSecret(u.password, u.passwordFile)
	if err != nil {
		return nil, err
	}
	secure, err := u.tlsConfig()
	if err != nil {
		return nil, err
	}
	var opts []etcdlock.Option
	if u.sessionTimeout > 0 {
		opts = append(opts, etcdlock.Timeout(u.sessionTimeout))
	}
	conf := clientv3.Config{
		Endpoints: u.endpoints(), TLS: secure,
		DialTimeout: cmp.Or(u.dialTimeout, defaultDialTimeout),
		// Servers close a connection with more frequent pings.
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), // the errors contain what it would log
	}
	if u.user != "" {
		if err := pingEtcd(ctx, conf); err != nil {
			return nil, withURL(u.String(), err)
		}
		conf.Username, conf.Password = u.user, password
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, u.explainEtcd(err)
	}
	d, err := etcdlock.New(client, opts...)
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(u.String(), err))
	}
	return &etcdStore{d, client}, nil
}

// pingEtcd reports what keeps us from reaching etcd. It uses a client without a user: a client
// with a user logs in when it is created, and retries until its timeout without saying
// anything about the connection.
func pingEtcd(ctx context.Context, conf clientv3.Config) error {
	client, err := clientv3.New(conf)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing was written
	d, err := etcdlock.New(client)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // it has no session
	return d.Ping(ctx)
}

// endpoints returns the servers in the form that the client takes.
func (u *zkURL) endpoints() []string {
	scheme := "http://"
	if u.tls {
		scheme = "https://"
	}
	var all []string
	for _, host := range u.hosts {
		all = append(all, scheme+host)
	}
	return all
}

// explainEtcd says in terms of the URL why etcd could not be opened.
func (u *zkURL) explainEtcd(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return withURL(u.String(), fmt.Errorf("%w: no answer to the login within %v: etcd hangs, or has no majority of its members",
			driver.ErrUnavailable, cmp.Or(u.dialTimeout, defaultDialTimeout)))
	}
	return withURL(u.String(), err)
}

// An etcdStore is a driver with its own client.
type etcdStore struct {
	*etcdlock.Driver
	client *clientv3.Client
}

// Close closes the client after the driver.
func (s *etcdStore) Close() error { return errors.Join(s.Driver.Close(), s.client.Close()) }

// etcdDenied reports whether etcd refused us for lack of a login or of permission.
func etcdDenied(err error) bool {
	var etcdErr rpctypes.EtcdError
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthFailed) ||
		errors.As(err, &etcdErr) && (etcdErr.Code() == codes.PermissionDenied || etcdErr.Code() == codes.Unauthenticated)
}
