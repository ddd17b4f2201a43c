package access

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/serve"
)

// An Access is the [serve.Authorizer] of a policy. It is safe for concurrent use.
type Access struct {
	file   string
	certs  *Certificates // nil: without TLS
	audit  *AuditLog
	policy atomic.Pointer[Policy]
}

var _ serve.Authorizer = (*Access)(nil)

// Load returns the Access of a policy file, for a listener with certs, if it has TLS. Refusals,
// breaks and reservations go to an audit log.
func Load(file string, certs *Certificates, audit *AuditLog) (*Access, error) {
	a := &Access{file: file, certs: certs, audit: audit}
	if err := a.Reload(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload reads the policy file again. If the file is bad, the policy stays as it is. The new policy
// applies to requests that are under way, too.
func (a *Access) Reload() error {
	p, err := LoadPolicy(a.file)
	if err != nil {
		return err
	}
	a.policy.Store(p)
	return nil
}

// LongestTTL returns the greatest max-ttl of the policy; zero if it has none.
func (a *Access) LongestTTL() (longest time.Duration) {
	for _, n := range a.policy.Load().namespaces {
		longest = max(longest, n.MaxTTL)
	}
	return longest
}

// An admission is what a principal was admitted with.
type admission struct {
	identity identity
	rights   Rights // at that time
	remote   string
}

// Authenticate implements [serve.Authorizer]. A request without credentials is refused without a
// record: a browser that opens the console sends some before it asks for a token.
func (a *Access) Authenticate(r *http.Request) (*serve.Principal, error) {
	policy := a.policy.Load()
	remote := ""
	if addr := policy.remote(r); addr.IsValid() { // a Unix socket has none
		remote = addr.String()
	}
	id, rights, err := policy.authenticate(r, a.certs)
	switch {
	case errors.Is(err, errNoCredentials):
		return nil, refusal(err)
	case err != nil:
		return nil, a.refuse(Event{Remote: remote}, err)
	}
	return &serve.Principal{
		Name: rights.Name, Prefix: rights.prefix,
		Rights: &admission{identity: id, rights: rights, remote: remote},
	}, nil
}

func (p *Policy) authenticate(r *http.Request, certs *Certificates) (identity, Rights, error) {
	token, err := bearer(r)
	if err != nil {
		return nil, Rights{}, err
	}
	if err := p.checkOrigin(r); err != nil {
		return nil, Rights{}, err
	}
	id := tokenIdentity(token)
	if token == "" {
		if id, err = certificateIdentity(r, certs); err != nil {
			return nil, Rights{}, err
		}
	}
	rights, err := id(p)
	return id, rights, errors.Join(err, rights.check(time.Now()))
}

// rights returns what the policy of now allows to a principal.
func (a *Access) rights(p *serve.Principal) (Rights, error) {
	admitted := p.Rights.(*admission)
	rights, err := admitted.identity(a.policy.Load())
	switch {
	case err != nil:
		return Rights{}, err
	case rights.prefix != admitted.rights.prefix:
		return Rights{}, refusedf("the namespace of %s has changed; send the request again", rights.Name)
	}
	return rights, rights.check(time.Now())
}

// May implements [serve.Authorizer].
func (a *Access) May(p *serve.Principal, v serve.Verb, name string) bool {
	rights, err := a.rights(p)
	return err == nil && rights.Allows(v, name)
}
