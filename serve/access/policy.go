package access

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/serve"
)

// A Policy says who may do what. It does not change.
type Policy struct {
	tokens       map[digest]Rights
	certificates []certificateEntry
	namespaces   map[string]Namespace
	proxies      []netip.Prefix // whose X-Forwarded-For is believed
	hosts        []string       // of URLs of the service, in lower case
}

// A Namespace is a part of the store. A principal of a namespace uses names without the Prefix, and
// never sees a lock outside.
type Namespace struct {
	Name   string
	Prefix string        // of the names of its locks in the store
	MaxTTL time.Duration // of a lease, and of its MinHold; zero: no bound
}

// Rights are what a policy allows to somebody: some verbs, on the locks of a namespace whose
// names have one of the prefixes.
type Rights struct {
	Name      string // of the table in the policy, for people
	Verbs     []serve.Verb
	Namespace string    // "": the whole store
	Prefixes  []string  // empty: all locks of the namespace
	Until     time.Time // zero: without an end

	prefix string        // of the namespace
	maxTTL time.Duration // likewise
}

// A certificateEntry is a client certificate in a policy. One of the texts is not empty.
type certificateEntry struct {
	dns, uri string // a subject alternative name
	rights   Rights
}

// All returns the rights of everybody whom the policy admits, in the order of their names.
func (p *Policy) All() []Rights {
	all := slices.Collect(maps.Values(p.tokens))
	for _, c := range p.certificates {
		all = append(all, c.rights)
	}
	slices.SortStableFunc(all, func(a, b Rights) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// nameFor returns the name of an event's lock as somebody with these rights calls it. An event
// whose namespace is not in the policy any more has the name "", as one without a lock: only those
// who may see all locks see it.
func (p *Policy) nameFor(r Rights, e Event) (name string, ok bool) {
	if r.Namespace != "" || e.Namespace == "" {
		return e.Name, e.Namespace == r.Namespace
	}
	if n, ok := p.namespaces[e.Namespace]; ok && e.Name != "" {
		return n.Prefix + e.Name, true
	}
	return "", true
}

// Allows reports whether somebody may do something with a lock, by the name that a principal uses.
func (r Rights) Allows(v serve.Verb, name string) bool { return r.Has(v) && r.Covers(name) }

// Has reports whether somebody may do something with some locks at least.
func (r Rights) Has(v serve.Verb) bool { return slices.Contains(r.Verbs, v) }

// Covers reports whether a lock is one of those that the rights are about.
func (r Rights) Covers(name string) bool {
	return len(r.Prefixes) == 0 ||
		slices.ContainsFunc(r.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// hasScopeOf reports whether the rights are for the same actions and locks as others.
func (r Rights) hasScopeOf(other Rights) bool {
	return slices.Equal(r.Verbs, other.Verbs) && slices.Equal(r.Prefixes, other.Prefixes)
}

// MayCover reports whether a lock whose name begins with prefix can be one of those that the
// rights are about.
func (r Rights) MayCover(prefix string) bool {
	return r.Covers(prefix) || slices.ContainsFunc(r.Prefixes, func(p string) bool { return strings.HasPrefix(p, prefix) })
}

// check reports that the rights have ended.
func (r Rights) check(now time.Time) error {
	if r.Until.IsZero() || now.Before(r.Until) {
		return nil
	}
	return refusedf("%s was admitted until %s", r.Name, r.Until.UTC().Format(time.RFC3339))
}
