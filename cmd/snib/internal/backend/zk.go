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

// A zkKind is one of the schemes of ZooKeeper. Hosts, users and files are read as in the URLs of Redis.
type zkKind struct{ redisKind }

var (
	zooKeeper = zkKind{redisKind{
		scheme: "zk", form: "zk://[USER:PASSWORD@]HOST[:PORT],...[/ROOT]", port: "2181", several: true,
	}}
	secureZooKeeper = zkKind{redisKind{
		scheme: "zks", form: "zks://[USER:PASSWORD@]HOST[:PORT],...[/ROOT]", port: "2281", several: true, tls: true,
	}}
)

// A zkURL is what an URL says.
type zkURL struct {
	redisURL
	root    string // "" for the default
	timeout time.Duration
	keep    bool
}

// ZooKeeperParameters are those of the URLs of ZooKeeper, in the order in which the help shows them.
func ZooKeeperParameters() []Parameter { return new(zkURL).parameters() }

// parameters are all that there are, which set what the URL says.
func (u *zkURL) parameters() []Parameter {
	all := []Parameter{
		{Syntax: "session-timeout=DURATION", Doc: "after how much silence the ensemble frees our locks (default 15s)",
			set: func(value string) (err error) { u.timeout, err = duration(value, time.Hour); return err }},
		{Syntax: "suspended=lost|keep", Doc: "keep: a lock outlasts its connection, if another one carries on the session in time " +
			"(default lost)", set: u.setSuspended},
	}
	for _, p := range u.redisURL.parameters() { // those that have nothing to do with Redis
		if p.name() == "password-file" || p.name() == "dial-timeout" || p.tls {
			all = append(all, p)
		}
	}
	return all
}

// duration reads one of up to most; a bare number is in seconds.
func duration(text string, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d <= 0 || d > most {
		return 0, fmt.Errorf("it is no duration of up to %v; give one such as 20s", most)
	}
	return d, nil
}

func (u *zkURL) setSuspended(value string) error {
	u.keep = value == "keep"
	if !u.keep && value != "lost" {
		return errors.New("it is neither lost nor keep")
	}
	return nil
}

// resolve is the [Scheme] of a kind.
func (k zkKind) resolve(rest string) (place, error) {
	u, err := k.parse(rest)
	if err != nil {
		return place{}, err
	}
	return place{url: u.String(), open: u.open, transport: u.transport("")}, nil
}

// parse reads what follows the scheme and its colon.
func (k zkKind) parse(rest string) (*zkURL, error) {
	userinfo, hosts, path, query, err := k.split(rest)
	if err != nil {
		return nil, err
	}
	u := &zkURL{redisURL: redisURL{redisKind: k.redisKind}}
	if err := u.setUser(userinfo); err != nil {
		return nil, err
	}
	if err := u.setHosts(hosts); err != nil {
		return nil, err
	}
	if path != "" {
		root, err := url.PathUnescape(path)
		if err != nil {
			return nil, k.bad("its path has a %% that begins no code of a character; %% itself is written %%25")
		}
		u.root = "/" + root
	}
	if err := u.setParameters(query, u.parameter); err != nil {
		return nil, err
	}
	return u, u.check()
}

// parameter finds a parameter that makes sense in the URL. One that there is not is not repeated: it may be a part of a password.
func (u *zkURL) parameter(name string) (*Parameter, error) {
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
	return nil, fmt.Errorf("%w URL: it has a parameter that there is not; there are %s", ErrConfig, strings.Join(names, ", "))
}

func (u *zkURL) check() error {
	if u.user == "" && (u.password != "" || u.passwordFile != "") {
		return u.bad("it has a password and no user")
	}
	if u.user != "" && u.password == "" && u.passwordFile == "" {
		return u.bad("it has a user and no password, neither in it nor by password-file")
	}
	return u.redisURL.check()
}

// String is the URL without secrets, and without what does not change which locks it is about.
func (u *zkURL) String() string {
	return u.scheme + "://" + strings.ReplaceAll(strings.Join(u.hosts, ","), "%", "%25") + (&url.URL{Path: u.root}).EscapedPath()
}

func (u *zkURL) open() (driver.Driver, error) {
	opts, err := u.options()
	if err != nil {
		return nil, err
	}
	d := zklock.New(u.hosts, opts...)
	// Ping is bounded by the dial timeout. An outage is for the first call to tell, which may
	// wait.
	if err := d.Ping(context.Background()); err != nil && !errors.Is(err, driver.ErrUnavailable) {
		_ = d.Close()
		if errors.Is(err, driver.ErrInvalid) {
			return nil, fmt.Errorf("%w: %w", ErrConfig, in(u.String(), err))
		}
		return nil, err
	}
	return &zooKeeperStore{d, u}, nil
}

// options reads the files that the URL names, and says how to connect.
func (u *zkURL) options() ([]zklock.Option, error) {
	opts := []zklock.Option{zklock.DialTimeout(cmp.Or(u.dial, dialTimeout))}
	if u.user != "" {
		password, err := secret(u.password, u.passwordFile)
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
	if u.timeout > 0 {
		opts = append(opts, zklock.Timeout(u.timeout))
	}
	if u.keep {
		opts = append(opts, zklock.KeepSuspended())
	}
	return opts, nil
}

// zooKeeperDenied reports whether ZooKeeper said that we may not do this.
func zooKeeperDenied(err error) bool {
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed)
}
