package access

import (
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/serve"
)

// Allows reports whether somebody may do something with a lock, by the name that a principal uses.
func (r Rights) Allows(v serve.Verb, name string) bool { return r.Has(v) && r.Covers(name) }

// Has reports whether somebody may do something with some locks at least.
func (r Rights) Has(v serve.Verb) bool { return slices.Contains(r.Verbs, v) }

// Covers reports whether a lock is one of those that the rights are about.
func (r Rights) Covers(name string) bool {
	return len(r.Prefixes) == 0 ||
		slices.ContainsFunc(r.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
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

// endBy returns the rights with an end that is not later than that of the credential.
func (r Rights) endBy(end time.Time) Rights {
	if r.Until.IsZero() || end.Before(r.Until) {
		r.Until = end
	}
	return r
}
