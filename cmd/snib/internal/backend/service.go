package backend

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
)

// ServicePort is the port on which a lock service listens by default.
const ServicePort = "7420"

// apiTokenVar is the environment variable with the token for a lock service. The arguments of a
// program can be read by everybody on the host, so no flag has it.
const apiTokenVar = "SNIB_API_TOKEN"

// token returns the token that is sent to the service; "" for none. It refuses to send one in
// clear text to another host.
func (u *serverURL) token() (string, error) {
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

// openService returns a driver for the service.
func (u *serverURL) openService(ctx context.Context) (driver.Driver, error) {
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
	if err != nil { // not *remotelock.Driver(nil) as a driver.Driver
		return nil, err
	}
	return d, nil
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
