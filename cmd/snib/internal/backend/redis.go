package backend

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
)

func (u *serverURL) openRedis(ctx context.Context) (driver.Driver, error) {
	o, err := u.options()
	if err != nil {
		return nil, err
	}
	d, err := redislock.Open(ctx, o, append(u.redis, redislock.FailoverGrace(!u.graceOff))...)
	if err != nil {
		return nil, u.explain(err)
	}
	return d, nil
}

// options reads the files that the URL names, and returns how to connect.
func (u *serverURL) options() (o rueidis.ClientOption, err error) {
	password, secure, err := u.credentials()
	if err != nil {
		return o, err
	}
	sentinelPassword, err := readSecret(u.sentinelPassword, u.sentinelPasswordFile)
	if err != nil {
		return o, err
	}
	dialer := net.Dialer{Timeout: cmp.Or(u.dialTimeout, defaultDialTimeout)}
	o = rueidis.ClientOption{
		InitAddress: u.hosts, Username: u.user, Password: password, SelectDB: u.database,
		TLSConfig: secure, Dialer: dialer,
	}
	if u.socket {
		o.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	// With Sentinel, the client would also use it for the Sentinels.
	if u.passwordFile != "" && !u.hasMaster {
		o.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			password, err := readSecret("", u.passwordFile)
			return rueidis.AuthCredentials{Username: u.user, Password: password}, err
		}
	}
	if u.hasMaster {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: u.masterName, Username: u.sentinelUser, Password: sentinelPassword,
			TLSConfig: secure, Dialer: dialer,
		}
	}
	return o, nil
}

// explain adds, in terms of the URL, what can be done about a Redis that could not be opened. If
// the URL or the server's configuration must be wrong, the error matches ErrConfig.
func (u *serverURL) explain(err error) error {
	says := func(part string) bool { return strings.Contains(err.Error(), part) }
	isReply := errors.As(err, new(*redislock.ReplyError))
	config := errors.Is(err, driver.ErrInvalid) || isReply && says("cluster support disabled") ||
		u.hasMaster && (says("No such master") || isReply && says("unknown command")) ||
		says("DB index is out of range") || says("without any password configured") || says("not Redis")
	if advice := u.advice(err); advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	if config {
		err = fmt.Errorf("%w: %w", ErrConfig, withURL(u.String(), err))
	}
	return err
}

// advice returns which parameter of the URL may help, or "".
func (u *serverURL) advice(err error) string {
	var reply *redislock.ReplyError
	switch isInvalid := errors.Is(err, driver.ErrInvalid); {
	case isInvalid && strings.Contains(err.Error(), "AllowSplitBrain"):
		return "in the URL that is allow-split-brain=on"
	case isInvalid && strings.Contains(err.Error(), "DurableAOF"):
		return "in the URL that is durable=aof"
	case !errors.As(err, &reply):
		return ""
	case u.hasMaster && hasKind(reply.Text, "NOAUTH", "WRONGPASS"):
		return "the answer is from the Sentinels or from the server: see password-file and sentinel-password-file"
	case hasKind(reply.Text, "NOAUTH"):
		return "see password-file"
	}
	return ""
}

// hasKind reports whether an error of Redis is of one of these kinds. The error of a
// script contains the kind.
func hasKind(text string, kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(k string) bool {
		return strings.HasPrefix(text, k+" ") || strings.Contains(text, "-"+k+" ")
	})
}

// Grace reports whether err says that the store grants nothing because it may have forgotten
// who holds what, and for how long.
func Grace(err error) (left time.Duration, ok bool) {
	if grace, ok := errors.AsType[*redislock.GraceError](err); ok {
		return grace.Left, true
	}
	return 0, false
}

// Withholds reports whether the store may withhold free locks: after a restart
// that may have lost leases.
func (s *Store) Withholds() bool {
	switch s.Driver.(type) {
	case *redislock.Driver, *redlockStore, withholding:
		return true
	}
	return false
}

// Grace returns for how long the store withholds a lock that seems to be free, or 0. An error
// is anything else that keeps the store from granting it. To find out, Grace acquires another
// lock, which nobody else wants, and releases it at once.
func (s *Store) Grace(ctx context.Context, name string, ttl time.Duration) (left time.Duration, err error) {
	if !s.Withholds() {
		return 0, nil
	}
	req := driver.Request{Name: probe(name), ID: rand.Text(), TTL: ttl, NoWait: true}
	lease, err := s.Acquire(ctx, req)
	left, ok := Grace(err)
	switch {
	case err == nil:
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = lease.Release(soon) // if that fails, the lease lapses
		return 0, nil
	case ok, errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrKind):
		return left, nil
	}
	return 0, err
}

// Forget ends the time for which a Redis grants nothing after a restart or a failover.
func (s *Store) Forget(ctx context.Context) error {
	d, ok := s.Driver.(*redislock.Driver)
	if !ok {
		return fmt.Errorf("%w: %s has no grace period; only Redis has one, as in redis://", ErrConfig, s.URL)
	}
	return withURL(s.URL, d.Admin().Forget(ctx))
}

// probe returns the name of a lock that nobody else wants. If possible, a Cluster keeps it on
// the same server as the lock name.
func probe(name string) string {
	_, rest, open := strings.Cut(name, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !open || !closed || tag == "" {
		tag = name
	}
	text := "snib-probe/" + rand.Text()
	if all := "{" + tag + "}" + text; !strings.ContainsAny(tag, "{}") && len(all) <= driver.MaxName {
		return all
	}
	return text
}
