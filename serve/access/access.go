package access

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/serve"
)

// An Access is the [serve.Authorizer] of a policy. It is safe for concurrent use.
type Access struct {
	conf     Config
	policy   atomic.Pointer[Policy]
	throttle *throttle

	mu     sync.Mutex
	meters map[string]*meter // by namespace
}

// A Config says what an Access works with. All fields are needed.
type Config struct {
	File  string    // the policy
	Audit *AuditLog // of refusals, breaks and reservations

	// List lists the locks in the store, as [driver.Inspector] does. Quotas count what it finds.
	List func(ctx context.Context, prefix string, yield func(driver.Status) bool) error
}

var _ serve.Authorizer = (*Access)(nil)

// Load returns the Access of a policy file. Its error matches [driver.ErrInvalid] if a field of
// conf is missing.
func Load(conf Config) (*Access, error) {
	switch {
	case conf.File == "":
		return nil, driver.Invalidf("access.Config: it has no File")
	case conf.Audit == nil:
		return nil, driver.Invalidf("access.Config: it has no Audit")
	case conf.List == nil:
		return nil, driver.Invalidf("access.Config: it has no List")
	}
	a := &Access{conf: conf, throttle: newThrottle(), meters: map[string]*meter{}}
	if err := a.Reload(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload reads the policy file again. If the file is bad, the policy stays as it is. The new policy
// applies to requests that are under way, too. The counts of quotas and of failed logins stay.
func (a *Access) Reload() error {
	p, err := LoadPolicy(a.conf.File)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.policy.Load(); old != nil {
		p.adoptIssuers(old)
	}
	for name, n := range p.namespaces {
		if m, ok := a.meters[name]; ok && m.prefix == n.Prefix {
			m.setQuota(n.Quota)
		} else {
			a.meters[name] = newMeter(n.Prefix, n.Quota, a.conf.List)
		}
	}
	a.policy.Store(p)
	return nil
}

// An admission is what a principal was admitted with.
type admission struct {
	identity identity
	prefix   string // of the principal
	remote   string
	known    atomic.Pointer[knownRights]
}

// knownRights are what a policy allows to an identity. A list asks for them again for each lock.
type knownRights struct {
	policy *Policy
	rights Rights
	err    error
}

// rights returns what a policy allows.
func (a *admission) rights(p *Policy) (Rights, error) {
	known := a.known.Load()
	if known == nil || known.policy != p {
		known = &knownRights{policy: p}
		known.rights, known.err = a.identity(p)
		a.known.Store(known)
	}
	return known.rights, known.err
}

// Authenticate implements [serve.Authorizer].
func (a *Access) Authenticate(r *http.Request) (*serve.Principal, error) {
	remote := a.policy.Load().remote(r)
	p, err := a.authenticate(r, remote)
	if err == nil {
		err = a.countRequest(p)
	}
	if err != nil {
		return nil, a.refuse(Event{Remote: remote.String()}, err)
	}
	return p, nil
}

func (a *Access) authenticate(r *http.Request, remote netip.Addr) (*serve.Principal, error) {
	token, given, err := bearer(r)
	if err != nil {
		return nil, err
	}
	policy := a.policy.Load()
	if err := policy.checkOrigin(r); err != nil {
		return nil, err
	}
	var rights Rights
	var id identity
	look := func() error {
		if id, err = policy.identify(r.Context(), r, token); err != nil {
			return err
		}
		if rights, err = id(policy); err != nil {
			return err
		}
		return rights.check(time.Now())
	}
	if given {
		err = a.slow(remote, token, look)
	} else {
		err = look() // nobody can try certificates: the handshake has verified the one that there is
	}
	if err != nil {
		return nil, err
	}
	return &serve.Principal{
		Name: rights.Name, Prefix: rights.prefix,
		Rights: &admission{identity: id, prefix: rights.prefix, remote: remote.String()},
	}, nil
}

// slow calls look, which checks a token, unless too many of the client's were refused. A token of
// NewToken is looked up in any case, and a right one admitted: nobody guesses its 130 random bits,
// but strangers who are slowed must not end the holds of those who have one.
func (a *Access) slow(remote netip.Addr, token string, look func() error) error {
	if isToken(token) {
		err := look()
		if err == nil {
			return nil
		}
		look = func() error { return err }
	}
	if err := a.throttle.try(remote, token, time.Now()); err != nil {
		return err
	}
	err := look()
	var down *UnavailableError
	switch {
	case err == nil:
		a.throttle.worked(remote, token)
	case errors.As(err, &down):
		a.throttle.giveBack(remote)
	}
	return err
}

// rights returns what the policy of now allows to a principal.
func (a *Access) rights(p *serve.Principal) (Rights, error) {
	admitted := p.Rights.(*admission)
	rights, err := admitted.rights(a.policy.Load())
	switch {
	case err != nil:
		return Rights{}, err
	case rights.prefix != admitted.prefix:
		return Rights{}, refusedf("the namespace of %s has changed; send the request again", rights.Name)
	}
	return rights, rights.check(time.Now())
}

// May implements [serve.Authorizer].
func (a *Access) May(p *serve.Principal, v serve.Verb, name string) bool {
	rights, err := a.rights(p)
	return err == nil && rights.Allows(v, name)
}

// meter returns what counts the use of the principal's namespace; nil if the principal has none.
func (a *Access) meter(rights Rights) *meter {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.meters[rights.Namespace]
}

func (a *Access) countRequest(p *serve.Principal) error {
	rights, err := a.rights(p)
	if err != nil {
		return err
	}
	if m := a.meter(rights); m != nil {
		return m.request(time.Now())
	}
	return nil
}
