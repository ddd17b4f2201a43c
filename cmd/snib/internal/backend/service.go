package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
)

// A serviceKind is one of the schemes of a lock service. Hosts and files have the same form as in
// the URLs of Redis.
type serviceKind struct{ urlKind }

// ServicePort is the port on which a lock service listens by default.
const ServicePort = "7420"

var (
	lockService       = serviceKind{urlKind{scheme: "http", syntax: "http://HOST[:PORT],...", port: ServicePort, manyHosts: true}}
	secureLockService = serviceKind{urlKind{scheme: "https", syntax: "https://HOST[:PORT],...", port: ServicePort, manyHosts: true, tls: true}}
)

// A serviceURL is a parsed URL of a lock service.
type serviceURL struct {
	redisURL
	tokenFile string
}

// parameters returns all parameters. Their set functions store the values in u.
func (u *serviceURL) parameters() []Parameter {
	all := []Parameter{{
		Syntax: "token-file=FILE", Doc: "a file whose first line is the token that the service asks for (default $" + apiTokenVar + ")",
		set: func(value string) error { u.tokenFile = value; return nil },
	}}
	for _, p := range u.redisURL.parameters() { // those that don't depend on Redis
		if p.name() == "dial-timeout" || p.tls {
			all = append(all, p)
		}
	}
	return all
}

// resolve is the resolve function of the [Scheme].
func (k serviceKind) resolve(rest string) (location, error) {
	userinfo, hosts, path, query, err := k.split(rest)
	if err != nil {
		return location{}, err
	}
	u := &serviceURL{redisURL: redisURL{urlKind: k.urlKind}}
	switch {
	case userinfo != "":
		return location{}, k.errorf("it has a user or password; a lock service takes a token, by token-file=FILE or $%s, or a certificate, by cert and key", apiTokenVar)
	case path != "":
		return location{}, k.errorf("it has a path; names such as team/deploy distinguish locks")
	}
	if err := errors.Join(u.setHosts(hosts)); err != nil {
		return location{}, err
	}
	if err := u.setParameters(query, u.findParameter); err != nil {
		return location{}, err
	}
	if err := u.validate(); err != nil {
		return location{}, err
	}
	t := u.newTransport("")
	t.addSecrets(u.tokenFile)
	return location{url: u.String(), open: u.open, transport: t}, nil
}

// findParameter returns the parameter with that name, if the URL may have it. The error does not
// repeat an unknown name, which may be part of a token.
func (u *serviceURL) findParameter(name string) (*Parameter, error) {
	var names []string
	for _, p := range u.parameters() {
		switch {
		case p.name() == name && p.tls && !u.tls:
			return nil, fmt.Errorf("%w URL: parameter %s is for TLS; that is https://", ErrConfig, name)
		case p.name() == name:
			return &p, nil
		case u.tls || !p.tls:
			names = append(names, p.name())
		}
	}
	return nil, fmt.Errorf("%w URL: it has an unknown parameter; there are %s", ErrConfig, strings.Join(names, ", "))
}

// String returns the URL without secrets.
func (u *serviceURL) String() string { return u.redisURL.String() + "/" }

// apiTokenVar is the environment variable with the token for a lock service. The arguments of a
// program can be read by everybody on the host, so no flag has it.
const apiTokenVar = "SNIB_API_TOKEN"

// token returns the token that is sent to the service; "" for none. It refuses to send one in
// clear text to another host.
func (u *serviceURL) token() (string, error) {
	token, err := readSecret(strings.TrimSpace(os.Getenv(apiTokenVar)), u.tokenFile)
	if err != nil || token == "" || u.tls {
		return token, err
	}
	for _, host := range u.hosts {
		if !wire.IsLoopback(host) {
			return "", u.errorf("http:// would send the token of token-file or $%s in clear text; use https://", apiTokenVar)
		}
	}
	return token, nil
}

// open returns a driver for the service.
func (u *serviceURL) open(ctx context.Context) (driver.Driver, error) {
	token, err := u.token()
	if err != nil {
		return nil, err
	}
	secure, err := u.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: cmp.Or(u.dialTimeout, 2*time.Second), KeepAlive: 15 * time.Second}
	conf := remotelock.Config{Token: token, TLS: secure, Dial: dialer.DialContext}
	for _, host := range u.hosts {
		conf.Servers = append(conf.Servers, u.scheme+"://"+host)
	}
	d, err := remotelock.Open(ctx, conf)
	if errors.Is(err, driver.ErrInvalid) {
		return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(u.String(), err))
	}
	if err != nil { // not *remotelock.Driver(nil) as a driver.Driver
		return nil, err
	}
	return d, nil
}

// IsService reports whether the store is a lock service.
func (s *Store) IsService() bool {
	_, ok := s.Driver.(*remotelock.Driver)
	return ok
}

// examineService asks the service for a lock: it answers only if its store does.
func examineService(ctx context.Context, d *remotelock.Driver) ([]Finding, error) {
	if _, err := d.Status(ctx, "snib-doctor"); err != nil {
		return nil, err
	}
	return []Finding{{
		Check: "service", Verdict: Note, Value: "a lock service, which reaches its store, " + d.Backend(),
		Advice: "run snib doctor for that store, too, on a host that reaches it",
	}}, nil
}

// serviceDenied reports whether a lock service refused us for lack of a token or of a right.
func serviceDenied(err error) bool {
	var p *wire.Problem
	return errors.As(err, &p) && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden)
}
