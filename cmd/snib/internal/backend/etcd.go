package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
)

// openEtcd returns a driver for etcd. With a user, it contacts the servers and logs in. Without
// one, the first request shows whether they can be reached.
func (u *serverURL) openEtcd(ctx context.Context) (driver.Driver, error) {
	password, secure, err := u.credentials()
	if err != nil {
		return nil, err
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
		conf.DialOptions = append(conf.DialOptions, grpc.WithChainUnaryInterceptor(u.logIn))
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, u.explainEtcd(err)
	}
	d, err := etcdlock.New(client, u.etcd...)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &etcdStore{d, client}, nil
}

// logIn reads the password anew for each login: a client logs in again when its token is over.
func (u *serverURL) logIn(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if login, ok := req.(*etcdserverpb.AuthenticateRequest); ok && u.passwordFile != "" {
		password, err := readSecret("", u.passwordFile)
		if err != nil {
			return err
		}
		login.Password = password
	}
	return next(ctx, method, req, reply, conn, opts...)
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
func (u *serverURL) endpoints() []string {
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
func (u *serverURL) explainEtcd(err error) error {
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

// etcdMismatched reports whether an error that no retry mends is one of [Mismatched]. gRPC, and so
// etcdlock, say that only in words.
func etcdMismatched(err error) bool {
	text := err.Error()
	return strings.Contains(text, "handshake failed") || strings.Contains(text, "the server requires TLS")
}
