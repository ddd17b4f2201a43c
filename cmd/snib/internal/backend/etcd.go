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

// An etcdKind is one of the schemes of etcd. Its URLs are read as those of ZooKeeper, which name several hosts too.
type etcdKind struct{ zkKind }

var (
	etcd = etcdKind{zkKind{redisKind{
		scheme: "etcd", form: "etcd://[USER:PASSWORD@]HOST[:PORT],...", port: "2379", several: true,
	}}}
	secureEtcd = etcdKind{zkKind{redisKind{
		scheme: "etcds", form: "etcds://[USER:PASSWORD@]HOST[:PORT],...", port: "2379", several: true, tls: true,
	}}}
)

// resolve is the [Scheme] of a kind.
func (k etcdKind) resolve(rest string) (place, error) {
	u, err := k.parse(rest)
	switch {
	case err != nil:
		return place{}, err
	case u.root != "":
		return place{}, k.bad("it has a path; locks are told apart by their names, such as team/deploy")
	case u.keep:
		return place{}, k.bad("its parameter suspended is ZooKeeper's")
	}
	return place{url: u.String(), open: func() (driver.Driver, error) { return openEtcd(u) }, transport: u.transport("")}, nil
}

// openEtcd connects. Whether anybody is there, and who we are to them, is said by the first question.
func openEtcd(u *zkURL) (driver.Driver, error) {
	password, err := secret(u.password, u.passwordFile)
	if err != nil {
		return nil, err
	}
	secure, err := u.tlsConfig()
	if err != nil {
		return nil, err
	}
	var opts []etcdlock.Option
	if u.timeout > 0 {
		opts = append(opts, etcdlock.Timeout(u.timeout))
	}
	conf := clientv3.Config{
		Endpoints: u.endpoints(), TLS: secure,
		DialTimeout:       cmp.Or(u.dial, dialTimeout),
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second, // servers close a connection that asks more often
		Logger: zap.NewNop(), // what it has to say is in the errors
	}
	if u.user != "" {
		if err := reachEtcd(conf); err != nil {
			return nil, in(u.String(), err)
		}
		conf.Username, conf.Password = u.user, password
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, u.explainEtcd(err)
	}
	return &etcdStore{etcdlock.New(client, opts...), client}, nil
}

// reachEtcd reports what keeps us from etcd. A client with a user logs in when it is made, and
// tries that until its time is over without a word about the connection.
func reachEtcd(conf clientv3.Config) error {
	client, err := clientv3.New(conf)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing was written
	d := etcdlock.New(client)
	defer d.Close() //nolint:errcheck // it has no session
	return d.Ping(context.Background())
}

// endpoints are the servers as the client calls them.
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

// explainEtcd says in terms of the URL what can be done about an etcd that could not be opened.
func (u *zkURL) explainEtcd(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return in(u.String(), fmt.Errorf("%w: no answer to our login within %v: it hangs, or there is no majority of its members",
			driver.ErrUnavailable, cmp.Or(u.dial, dialTimeout)))
	}
	return in(u.String(), err)
}

// An etcdStore is a driver with a client of its own.
type etcdStore struct {
	*etcdlock.Driver
	client *clientv3.Client
}

// Close closes the client after the driver.
func (s *etcdStore) Close() error { return errors.Join(s.Driver.Close(), s.client.Close()) }

// etcdDenied reports whether etcd said that we may not do this.
func etcdDenied(err error) bool {
	var said rpctypes.EtcdError
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthFailed) ||
		errors.As(err, &said) && (said.Code() == codes.PermissionDenied || said.Code() == codes.Unauthenticated)
}
