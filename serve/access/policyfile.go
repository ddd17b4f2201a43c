package access

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/serve"
)

// LoadPolicy reads a policy file. An error says the line, what is wrong there, and what would be
// right. Nothing in it is taken from the file but names.
func LoadPolicy(file string) (*Policy, error) {
	text, err := readOwnFile(file, "the policy")
	if err != nil {
		return nil, err
	}
	p, err := ParsePolicy(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// ParsePolicy parses the text of a policy file.
func ParsePolicy(text string) (*Policy, error) {
	file, err := parseTable(text)
	if err != nil {
		return nil, err
	}
	b := policyReader{file: file, policy: &Policy{namespaces: map[string]Namespace{}}, roles: map[string][]serve.Verb{}}
	if err := b.read(); err != nil {
		return nil, err
	}
	return b.policy, nil
}

// A policyReader turns the tables of a file into a policy.
type policyReader struct {
	file   table
	policy *Policy
	roles  map[string][]serve.Verb
}

func (b *policyReader) read() error {
	var proxies, hosts listValue
	err := b.file.decode(map[string]any{
		"trusted-proxies": &proxies, "hosts": &hosts,
		"role": section{}, "namespace": section{}, "token": section{}, "certificate": section{}, "oidc": section{},
	})
	if err != nil {
		return err
	}
	for _, text := range proxies {
		proxy, err := parsePrefix(text)
		if err != nil {
			return b.file.errorAt("trusted-proxies", "%q is not an address or network; write 10.0.0.7 or 10.0.0.0/24", text)
		}
		b.policy.proxies = append(b.policy.proxies, proxy)
	}
	for _, host := range hosts {
		if host == "" || strings.ContainsAny(host, ":/") {
			return b.file.errorAt("hosts", "%q is not the name of a host; write it without scheme and port, such as locks.example.com", host)
		}
		b.policy.hosts = append(b.policy.hosts, strings.ToLower(host))
	}
	// Roles and namespaces first: the others use their names.
	for _, section := range []struct {
		name string
		read func(string, table) error
	}{
		{"role", b.role}, {"namespace", b.namespace}, {"token", b.token}, {"certificate", b.certificate}, {"oidc", b.issuer},
	} {
		if err := b.file.tables(section.name, section.read); err != nil {
			return err
		}
	}
	if len(b.policy.tokens)+len(b.policy.certificates)+len(b.policy.issuers) == 0 {
		return errors.New("the policy admits nobody: it has no [token.NAME], [certificate.NAME] or [oidc.NAME]")
	}
	return nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}

// role reads [role.NAME].
func (b *policyReader) role(name string, t table) error {
	var verbs listValue
	if err := t.decode(map[string]any{"verbs": &verbs}); err != nil {
		return err
	}
	parsed, err := parseVerbs(t, verbs)
	b.roles[name] = parsed
	return err
}

func parseVerbs(t table, names []string) ([]serve.Verb, error) {
	if len(names) == 0 {
		return nil, t.errorf("%s has no verbs; write verbs = [...] with some of %s", t, verbNames())
	}
	var verbs []serve.Verb
	for _, name := range names {
		if !slices.Contains(allVerbs(), serve.Verb(name)) {
			return nil, t.errorAt("verbs", "there is no verb %q; there are %s", name, verbNames())
		}
		verbs = append(verbs, serve.Verb(name))
	}
	return verbs, nil
}

func allVerbs() []serve.Verb {
	return []serve.Verb{serve.VerbRead, serve.VerbAcquire, serve.VerbBreak, serve.VerbReserve, serve.VerbAdmin}
}

func verbNames() string {
	var names []string
	for _, v := range allVerbs() {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// namespace reads [namespace.NAME].
func (b *policyReader) namespace(name string, t table) error {
	prefix := textValue(name + "/")
	var locks, waiters countValue
	var ttl, hold durationValue
	var requests rateValue
	err := t.decode(map[string]any{
		"prefix": &prefix, "locks": &locks, "waiters": &waiters, "max-ttl": &ttl, "max-hold": &hold, "requests": &requests,
	})
	if err != nil {
		return err
	}
	for other, n := range b.policy.namespaces {
		if strings.HasPrefix(string(prefix), n.Prefix) || strings.HasPrefix(n.Prefix, string(prefix)) {
			return t.errorAt("prefix", "%q and %q, the prefix of [namespace.%s], overlap, so one would see the locks of the other; "+
				"end both with a slash, and put none below the other", string(prefix), n.Prefix, other)
		}
	}
	b.policy.namespaces[name] = Namespace{Name: name, Prefix: string(prefix), Quota: Quota{
		Locks: int(locks), Waiters: int(waiters), MaxTTL: time.Duration(ttl), MaxHold: time.Duration(hold), Requests: float64(requests),
	}}
	return nil
}

// A rightsReader collects the settings that tokens, certificates and rules of issuers share.
type rightsReader struct {
	verbs, roles, prefixes listValue
	namespace              textValue
	until                  endValue
}

// fields returns the shared settings, and more.
func (f *rightsReader) fields(more map[string]any) map[string]any {
	fields := map[string]any{"verbs": &f.verbs, "roles": &f.roles, "prefixes": &f.prefixes, "namespace": &f.namespace, "until": &f.until}
	maps.Copy(fields, more)
	return fields
}

// rights returns what the settings of a table say.
func (b *policyReader) rights(name string, t table, f *rightsReader) (Rights, error) {
	r := Rights{Name: name, Prefixes: f.prefixes, Until: time.Time(f.until)}
	for _, role := range f.roles {
		verbs, ok := b.roles[role]
		if !ok {
			return Rights{}, t.errorAt("roles", "there is no [role.%s]%s", role, orOneOf("role", b.roles))
		}
		r.Verbs = append(r.Verbs, verbs...)
	}
	if len(f.verbs) > 0 || len(f.roles) == 0 {
		verbs, err := parseVerbs(t, f.verbs)
		if err != nil {
			return Rights{}, err
		}
		r.Verbs = append(r.Verbs, verbs...)
	}
	if f.namespace == "" {
		if len(f.prefixes) == 0 {
			return Rights{}, t.errorf(`%s says neither namespace nor prefixes; write namespace = "NAME", or prefixes = [""] for all locks of the store`, t)
		}
		return r, nil
	}
	n, ok := b.policy.namespaces[string(f.namespace)]
	if !ok {
		return Rights{}, t.errorAt("namespace", "there is no [namespace.%s]%s", f.namespace, orOneOf("namespace", b.policy.namespaces))
	}
	r.Namespace, r.prefix = n.Name, n.Prefix
	return r, nil
}

// orOneOf names the tables of a section that there are.
func orOneOf[V any](section string, tables map[string]V) string {
	if len(tables) == 0 {
		return "; write one"
	}
	return "; there are [" + section + "." + strings.Join(slices.Sorted(maps.Keys(tables)), "], ["+section+".") + "]"
}

// token reads [token.NAME].
func (b *policyReader) token(name string, t table) error {
	var digest digestValue
	var rights rightsReader
	if err := t.decode(rights.fields(map[string]any{"sha256": &digest})); err != nil {
		return err
	}
	if digest == (digestValue{}) {
		return t.errorf("%s has no sha256; snib serve token %s makes a token and prints this line", t, name)
	}
	for _, other := range b.policy.tokens {
		if other.digest == digest {
			return t.errorAt("sha256", "%s is the same token as %s; make one for each", t, other.rights.Name)
		}
	}
	r, err := b.rights(t.String(), t, &rights)
	b.policy.tokens = append(b.policy.tokens, tokenEntry{digest, r})
	return err
}

// certificate reads [certificate.NAME].
func (b *policyReader) certificate(name string, t table) error {
	var dns, uri, email, subject textValue
	var rights rightsReader
	err := t.decode(rights.fields(map[string]any{"dns": &dns, "uri": &uri, "email": &email, "subject": &subject}))
	if err != nil {
		return err
	}
	entry := certificateEntry{dns: string(dns), uri: string(uri), email: string(email), subject: string(subject)}
	said := 0
	for _, v := range []textValue{dns, uri, email, subject} {
		if v != "" {
			said++
		}
	}
	if said != 1 {
		return t.errorf(`%s must say one of dns, uri, email and subject, such as dns = "backup.example.com"`, t)
	}
	entry.rights, err = b.rights(t.String(), t, &rights)
	b.policy.certificates = append(b.policy.certificates, entry)
	return err
}

// issuer reads [oidc.NAME] and [oidc.NAME.rule.NAME].
func (b *policyReader) issuer(name string, t table) error {
	var address, audience, authority textValue
	err := t.decode(map[string]any{"issuer": &address, "audience": &audience, "ca": &authority, "rule": section{}})
	if err != nil {
		return err
	}
	u, err := url.Parse(string(address))
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return t.errorAt("issuer", `%s needs issuer = "https://...", as the iss claim of its tokens has it`, t)
	}
	if audience == "" {
		return t.errorf(`%s has no audience; write what the aud claim of tokens for this service is, such as audience = "https://locks.example.com"`, t)
	}
	for _, other := range b.policy.issuers {
		if other.address == string(address) {
			return t.errorAt("issuer", "[%s] has this issuer, too; put all rules below one of them", other.name)
		}
	}
	i := &issuer{name: t.String(), keySource: &keySource{address: string(address), audience: string(audience), authority: string(authority)}}
	err = t.tables("rule", func(rule string, sub table) error {
		var claims claimsValue
		var rights rightsReader
		if err := sub.decode(rights.fields(map[string]any{"claims": &claims})); err != nil {
			return err
		}
		if len(claims) == 0 {
			return sub.errorf(`%s has no claims; write what they must be, such as claims = { repository = "example/shop" }`, sub)
		}
		r, err := b.rights(t.String(), sub, &rights)
		i.rules = append(i.rules, claimRule{claims: claims, rights: r})
		return err
	})
	if err != nil {
		return err
	}
	if len(i.rules) == 0 {
		return t.errorf("%s admits nobody; write [%s.rule.NAME] with claims and verbs", t, t)
	}
	b.policy.issuers = append(b.policy.issuers, i)
	return nil
}

// matchClaim reports whether a value satisfies one of the patterns. A * at the end of a pattern
// stands for any text.
func matchClaim(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(value, prefix)
		}
		return value == pattern
	})
}
