package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/zklock"
)

// A zkKind is one of the schemes of ZooKeeper. Hosts, users and files have the same form
// as in the URLs of Redis.
type zkKind struct{ urlKind }

var (
	zooKeeper = zkKind{urlKind{
		scheme: "zk", syntax: "zk://[USER:PASSWORD@]HOST[:PORT],...[/ROOT]", port: "2181", manyHosts: true,
	}}
	secureZooKeeper = zkKind{urlKind{
		scheme: "zks", syntax: "zks://[USER:PASSWORD@]HOST[:PORT],...[/ROOT]", port: "2281", manyHosts: true, tls: true,
	}}
)

// A zkURL is a parsed URL of ZooKeeper or etcd.
type zkURL struct {
	redisURL
	root           string // "" for the default
	sessionTimeout time.Duration
	keepSuspended  bool
	readWrite      bool // as Curator's InterProcessReadWriteLock
	literalNames   bool
}

// ZooKeeperParameters returns the parameters of the URLs of ZooKeeper, in the order in
// which the help shows them.
func ZooKeeperParameters() []Parameter { return new(zkURL).parameters() }

// parameters returns all parameters. Their set functions store the values in u.
func (u *zkURL) parameters() []Parameter {
	all := []Parameter{
		{Syntax: "session-timeout=DURATION", Doc: "the time after which the ensemble frees the locks of a silent client (default 15s)",
			set: func(value string) (err error) { u.sessionTimeout, err = parseDuration(value, time.Hour); return err }},
		{Syntax: "suspended=lost|keep", Doc: "keep: a lock outlasts its connection if another one continues the session in time " +
			"(default lost)", set: u.setSuspended},
		{Syntax: "curator-read-write=on|off", Doc: "on: exclude both sides of Curator's InterProcessReadWriteLock, and no longer its " +
			"InterProcessMutex (default off)", set: func(value string) (err error) { u.readWrite, err = onOff(value); return err }},
		{Syntax: "literal-names=on|off", Doc: "on: use names as they are, without escapes, as the path of another library's lock " +
			"(default off)", set: func(value string) (err error) { u.literalNames, err = onOff(value); return err }},
	}
	for _, p := range u.redisURL.parameters() { // those that don't depend on Redis
		if p.name() == "password-file" || p.name() == "dial-timeout" || p.tls {
			all = append(all, p)
		}
	}
	return all
}

// parseDuration parses a positive duration of at most max. A bare number is in seconds.
func parseDuration(text string, max time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d <= 0 || d > max {
		return 0, fmt.Errorf("it is not a duration of up to %v; give one such as 20s", max)
	}
	return d, nil
}

func (u *zkURL) setSuspended(value string) error {
	u.keepSuspended = value == "keep"
	if !u.keepSuspended && value != "lost" {
		return errors.New("it is neither lost nor keep")
	}
	return nil
}

// resolve is the resolve function of the [Scheme].
func (k zkKind) resolve(rest string) (location, error) {
	u, err := k.parse(rest)
	if err != nil {
		return location{}, err
	}
	return location{url: u.String(), open: u.open, transport: u.newTransport("")}, nil
}

// parse parses what follows the scheme and its colon.
func (k zkKind) parse(rest string) (*zkURL, error) {
	userinfo, hosts, path, query, err := k.split(rest)
	if err != nil {
		return nil, err
	}
	u := &zkURL{redisURL: redisURL{urlKind: k.urlKind}}
	if err := u.setUser(userinfo); err != nil {
		return nil, err
	}
	if err := u.setHosts(hosts); err != nil {
		return nil, err
	}
	if path != "" {
		root, err := url.PathUnescape(path)
		if err != nil {
			return nil, k.errorf("its path has a %% that does not begin the code of a character; write %% itself as %%25")
		}
		u.root = "/" + root
	}
	if err := u.setParameters(query, u.findParameter); err != nil {
		return nil, err
	}
	return u, u.validate()
}

// findParameter returns the parameter with that name, if the URL may have it. The error does
// not repeat an unknown name, which may be part of a password.
func (u *zkURL) findParameter(name string) (*Parameter, error) {
	var names []string
	for _, p := range u.parameters() {
		switch {
		case p.name() == name && p.tls && !u.tls:
			return nil, fmt.Errorf("%w URL: parameter %s is for TLS; that is %ss://", ErrConfig, name, u.scheme)
		case p.name() == name:
			return &p, nil
		case u.tls || !p.tls:
			names = append(names, p.name())
		}
	}
	return nil, fmt.Errorf("%w URL: it has an unknown parameter; there are %s", ErrConfig, strings.Join(names, ", "))
}

func (u *zkURL) validate() error {
	if u.user == "" && (u.password != "" || u.passwordFile != "") {
		return u.errorf("it has a password and no user")
	}
	if u.user != "" && u.password == "" && u.passwordFile == "" {
		return u.errorf("it has a user and no password, neither in it nor by password-file")
	}
	return u.redisURL.validate()
}

// String returns the URL without secrets, and without what does not determine which locks it
// reaches.
func (u *zkURL) String() string {
	return u.scheme + "://" + strings.ReplaceAll(strings.Join(u.hosts, ","), "%", "%25") + (&url.URL{Path: u.root}).EscapedPath()
}

func (u *zkURL) open(ctx context.Context) (driver.Driver, error) {
	opts, err := u.options()
	if err != nil {
		return nil, err
	}
	d, err := zklock.New(u.hosts, opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(u.String(), err))
	}
	// The dial timeout bounds Ping. A command that may wait opens the store again.
	if err := d.Ping(ctx); err != nil {
		_ = d.Close()
		if errors.Is(err, driver.ErrInvalid) {
			return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(u.String(), err))
		}
		return nil, err
	}
	return &zooKeeperStore{d, u}, nil
}

// options reads the files that the URL names, and returns how to connect.
func (u *zkURL) options() ([]zklock.Option, error) {
	opts := []zklock.Option{zklock.DialTimeout(cmp.Or(u.dialTimeout, defaultDialTimeout))}
	if u.user != "" {
		password, err := readSecret(u.password, u.passwordFile)
		if err != nil {
			return nil, err
		}
		opts = append(opts, zklock.Digest(u.user, password))
	}
	conf, err := u.tlsConfig()
	if err != nil {
		return nil, err
	}
	if conf != nil {
		opts = append(opts, zklock.TLS(conf))
	}
	if u.root != "" {
		opts = append(opts, zklock.Root(u.root))
	}
	if u.sessionTimeout > 0 {
		opts = append(opts, zklock.Timeout(u.sessionTimeout))
	}
	if u.keepSuspended {
		opts = append(opts, zklock.KeepSuspended())
	}
	if u.readWrite {
		opts = append(opts, zklock.CuratorReadWrite())
	}
	if u.literalNames {
		opts = append(opts, zklock.LiteralNames())
	}
	return opts, nil
}

// zooKeeperDenied reports whether ZooKeeper refused us for lack of permission.
func zooKeeperDenied(err error) bool {
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed)
}
