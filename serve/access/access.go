package access

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An Access decides who may do what in a service. It is safe for concurrent use.
type Access struct {
	file     string
	policy   atomic.Pointer[Policy]
	throttle *throttle
	audit    *AuditLog
	list     listFunc

	mu     sync.Mutex
	meters map[string]*meter // by namespace
}

// Load returns the Access of a policy file. Refusals and forced acts go to the audit log.
// Quotas of locks count what list finds in the store.
func Load(file string, audit *AuditLog, list listFunc) (*Access, error) {
	a := &Access{file: file, throttle: newThrottle(), audit: audit, list: list, meters: map[string]*meter{}}
	if err := a.Reload(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload reads the policy file again. If it is bad, the policy stays as it is. Counts of
// quotas, and failures of clients, stay in any case.
func (a *Access) Reload() error {
	p, err := LoadPolicy(a.file)
	if err != nil {
		return err
	}
	if old := a.policy.Load(); old != nil {
		p.adoptIssuers(old)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range p.namespaces {
		if m, ok := a.meters[name]; ok && m.prefix == n.Prefix {
			m.setQuota(n.Quota)
			continue
		}
		a.meters[name] = newMeter(n.Prefix, n.Quota, a.list)
	}
	a.policy.Store(p)
	return nil
}

// authenticate returns the rights of whoever sent a request.
func (a *Access) authenticate(r *http.Request) (Rights, error) {
	p, now := a.policy.Load(), time.Now()
	token, given, err := bearer(r)
	if err != nil {
		return Rights{}, err
	}
	if !given {
		return p.authenticate(r.Context(), r, "", now) // a certificate can't be tried: the handshake has verified it
	}
	remote := p.remote(r)
	if wait := a.throttle.try(remote, token, now); wait > 0 {
		return Rights{}, &BlockedError{RetryAfter: wait}
	}
	rights, err := p.authenticate(r.Context(), r, token, now)
	if _, down := err.(*UnavailableError); down {
		a.throttle.giveBack(remote)
	}
	if err == nil {
		a.throttle.worked(remote, token)
	}
	return rights, err
}
