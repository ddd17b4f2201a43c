package backend

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
)

// resolve is the [Scheme] of a kind.
func (k redisKind) resolve(rest string) (place, error) {
	u, err := k.parse(rest)
	if err != nil {
		return place{}, err
	}
	return place{url: u.String(), open: u.open, transport: u.transport("set requirepass, or users with ACL")}, nil
}

func (u *redisURL) open() (driver.Driver, error) {
	if u.nodes {
		return u.openNodes()
	}
	o, opts, err := u.options()
	if err != nil {
		return nil, err
	}
	d, err := redislock.Open(o, opts...)
	if err != nil {
		return nil, u.explain(err)
	}
	return d, nil
}

// explain says in terms of the URL what can be done about a Redis that could not be opened.
func (u *redisURL) explain(err error) error {
	advice, config := u.advice(err)
	if advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	if config {
		err = fmt.Errorf("%w: %w", ErrConfig, in(u.String(), err))
	}
	return err
}

// advice says what may help, if anything, and whether what we were told to open can't be right.
func (u *redisURL) advice(err error) (text string, config bool) {
	var answer *redislock.ReplyError
	says := func(part string) bool { return strings.Contains(err.Error(), part) }
	refused := errors.As(err, &answer)
	switch {
	case errors.Is(err, driver.ErrInvalid) && says("topology"):
		return "did you mean " + u.other() + "?", true
	case errors.Is(err, driver.ErrInvalid) && says("AllowSplitBrain"):
		return "in the URL that is allow-split-brain=on", true
	case errors.Is(err, driver.ErrInvalid):
		return "", true
	case u.master && says("No such master"):
		return "SENTINEL MASTERS tells which there are", true
	case u.master && refused && says("unknown command"):
		return "the port is to be that of a Sentinel, mostly " + sentinelPort, true
	case refused && says("cluster support disabled"):
		return "did you mean " + u.other() + "?", true
	case u.master && refused && has(answer.Text, "NOAUTH", "WRONGPASS"):
		return "it is the Sentinels or the server: see password-file and sentinel-password-file", false
	case refused && has(answer.Text, "NOAUTH"):
		return "see password-file", false
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "name who signed it with ca=FILE, or the name in it with server-name=NAME", true
	case u.tls && cutOff(err):
		return "it may want a certificate of ours: cert=FILE and key=FILE", false
	case !u.tls && cutOff(err):
		return "with TLS it is " + u.secure().scheme + "://", false
	}
	return "", says("DB index is out of range") || says("without any password configured") || says("not Redis") ||
		errors.As(err, new(tls.RecordHeaderError))
}

// other is the beginning of the URL for a server that is a node of a Cluster against what the URL says, or the other way round.
func (u *redisURL) other() string {
	if u.db {
		return u.base() + "+cluster://"
	}
	return u.base() + "://"
}

// cutOff reports whether somebody was there and hung up.
func cutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// has reports whether an error of Redis is of one of these kinds. That of a script has the kind within it.
func has(text string, kinds ...string) bool {
	for _, k := range kinds {
		if strings.HasPrefix(text, k+" ") || strings.Contains(text, "-"+k+" ") {
			return true
		}
	}
	return false
}

// Grace tells for how long a store grants nothing, if that is what an error says: it may have forgotten who holds what.
func Grace(err error) (left time.Duration, ok bool) {
	var grace *redislock.GraceError
	if errors.As(err, &grace) {
		return grace.Left, true
	}
	return 0, false
}

// Withholds reports whether the store may withhold locks that nobody holds: after a restart that may have lost leases.
func (s *Store) Withholds() bool {
	switch s.Driver.(type) {
	case *redislock.Driver, *nodesStore:
		return true
	}
	return false
}

// Grace tells for how long a lock is withheld that nobody is seen to hold: 0 if it is not. An error is what else keeps the store from
// granting it. To find out, another lock is asked for, which nobody else wants, and given back at once.
func (s *Store) Grace(ctx context.Context, req driver.Request) (left time.Duration, err error) {
	if !s.Withholds() {
		return 0, nil
	}
	req = driver.Request{Name: probe(req.Name), Owner: rand.Text(), TTL: req.TTL, NoWait: true}
	lease, err := s.Acquire(ctx, req)
	left, ok := Grace(err)
	switch {
	case err == nil:
		_ = lease.Release(context.WithoutCancel(ctx)) // or it lapses
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
		return fmt.Errorf("%w: %s withholds no locks after a restart; only a Redis does, as in redis://", ErrConfig, s.URL)
	}
	if err := d.Forget(ctx); err != nil {
		return in(s.URL, err)
	}
	return nil
}

// RestartGrace tells for how long the store would grant nothing if it restarted now. It is 0 for stores that don't withhold locks.
func (s *Store) RestartGrace(ctx context.Context) (time.Duration, error) {
	d, ok := s.Driver.(*redislock.Driver)
	if !ok {
		return 0, nil
	}
	return d.Grace(ctx)
}

// probe is the name of a lock that nobody else wants, on the same server of a Cluster as the lock name if such a name can be made.
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

// Warnings says in words which settings of the store break promises.
func (s *Store) Warnings() []string {
	if w, ok := s.Driver.(interface{ Warnings() []string }); ok {
		return w.Warnings()
	}
	return nil
}
