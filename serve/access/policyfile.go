package access

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/serve"
)

// A policyFile is a policy as it stands in its file.
type policyFile struct {
	Proxies      list                        `toml:"trusted-proxies"`
	Hosts        list                        `toml:"hosts"`
	Namespaces   map[string]namespaceTable   `toml:"namespace"`
	Tokens       map[string]tokenTable       `toml:"token"`
	Certificates map[string]certificateTable `toml:"certificate"`
}

type namespaceTable struct {
	Prefix text     `toml:"prefix"`
	MaxTTL duration `toml:"max-ttl"`
}

type tokenTable struct {
	rightsTable
	SHA256 digest `toml:"sha256"`
}

type certificateTable struct {
	rightsTable
	DNS text `toml:"dns"`
	URI text `toml:"uri"`
}

// A rightsTable has the settings that tokens and certificates share.
type rightsTable struct {
	Verbs     list `toml:"verbs"`
	Prefixes  list `toml:"prefixes"`
	Namespace text `toml:"namespace"`
	Until     end  `toml:"until"`
}

// The types of settings. Their errors say what would be right. An empty text or list is refused: it
// would mean everything.
type (
	text     string
	list     []string
	duration time.Duration
	end      time.Time
	digest   [digestSize]byte
)

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *text) UnmarshalTOML(data any) error {
	s, ok := data.(string)
	if !ok || s == "" {
		return errors.New("this must be text in quotes, and not empty")
	}
	*v = text(s)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *list) UnmarshalTOML(data any) error {
	items, _ := data.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			*v = append(*v, s)
		}
	}
	if len(items) == 0 || len(*v) != len(items) {
		return errors.New(`this must be a list of texts, such as ["one", "two"], and not empty`)
	}
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *duration) UnmarshalTOML(data any) error {
	text, _ := data.(string)
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New(`this must be a duration such as "90s", "15m" or "2h"`)
	}
	*v = duration(d)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler]. A date without a time ends when that day begins, in
// UTC, and a time without a zone is refused: which moment it is would depend on the host.
func (v *end) UnmarshalTOML(data any) error {
	at, ok := data.(time.Time)
	if !ok {
		return errors.New("this must be a date or a time without quotes, such as 2027-01-31 or 2027-01-31T18:00:00Z")
	}
	switch at.Location().String() {
	case "date-local":
		at = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	case "datetime-local", "time-local":
		return errors.New("this time has no zone; add Z for UTC, as in 2027-01-31T18:00:00Z")
	}
	*v = end(at)
	return nil
}

// UnmarshalTOML implements [toml.Unmarshaler].
func (v *digest) UnmarshalTOML(data any) error {
	text, _ := data.(string)
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != digestSize {
		return errors.New("this must be the SHA-256 of a token, 64 hexadecimal digits; snib serve token NAME prints it")
	}
	copy(v[:], sum)
	return nil
}

// LoadPolicy reads a policy file. An error says the line or the setting, what is wrong there, and
// what would be right. Nothing in it is taken from the file but names.
func LoadPolicy(file string) (*Policy, error) {
	content, err := loadFile(file, "the policy", true)
	if err != nil {
		return nil, err
	}
	p, err := ParsePolicy(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// ParsePolicy parses the text of a policy file.
func ParsePolicy(content string) (*Policy, error) {
	var file policyFile
	meta, err := toml.Decode(content, &file)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "toml: "))
	}
	for _, key := range meta.Keys() { // the decoder leaves out what is no table
		isTable := meta.Type(key...) == "Hash" || key[0] == "trusted-proxies" || key[0] == "hosts"
		if len(key) == 1 && !isTable {
			return nil, wrong(key, "it must be a table, so write [%s.NAME] and the settings below it", key)
		}
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, unknownSetting(unknown[0])
	}
	return file.policy()
}

// wrong says what is wrong with a setting, or with a table.
func wrong(key toml.Key, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{key}, args...)...)
}

// unknownSetting reports a key that no table has. A misspelt setting must not be ignored: it may be
// a bound.
func unknownSetting(key toml.Key) error {
	known := reflect.TypeFor[policyFile]()
	for _, f := range reflect.VisibleFields(known) {
		if len(key) > 2 && f.Tag.Get("toml") == key[0] {
			known = f.Type.Elem()
		}
	}
	var names []string
	for _, f := range reflect.VisibleFields(known) {
		if name := f.Tag.Get("toml"); name != "" {
			names = append(names, name)
		}
	}
	return wrong(key, "there is no such setting; there are %s", strings.Join(names, ", "))
}

// policy returns what a file says.
func (f *policyFile) policy() (*Policy, error) {
	p := &Policy{tokens: map[digest]Rights{}, namespaces: map[string]Namespace{}}
	for _, from := range f.Proxies {
		proxy, err := parsePrefix(from)
		if err != nil {
			return nil, wrong(toml.Key{"trusted-proxies"}, "%q is not an address or network; write 10.0.0.7 or 10.0.0.0/24", from)
		}
		p.proxies = append(p.proxies, proxy)
	}
	for _, host := range f.Hosts {
		if host == "" || strings.ContainsAny(host, ":/") {
			return nil, wrong(toml.Key{"hosts"}, "%q is not the name of a host; write it without scheme and port, such as locks.example.com", host)
		}
		p.hosts = append(p.hosts, strings.ToLower(host))
	}
	err := cmp.Or(addAll(f.Namespaces, p.addNamespace), addAll(f.Tokens, p.addToken),
		addAll(f.Certificates, p.addCertificate))
	if err == nil && len(p.tokens)+len(p.certificates) == 0 {
		err = errors.New("the policy admits nobody: it has no [token.NAME] or [certificate.NAME]")
	}
	return p, err
}

// addAll adds the tables of one kind, in the order of their names, up to the first that is wrong.
func addAll[T any](tables map[string]T, add func(name string, table T) error) error {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if err := add(name, tables[name]); err != nil {
			return err
		}
	}
	return nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}

// verbsOf returns the verbs of a table.
func verbsOf(table toml.Key, names []string) ([]serve.Verb, error) {
	all := []string{string(serve.VerbRead), string(serve.VerbAcquire), string(serve.VerbBreak), string(serve.VerbReserve),
		string(serve.VerbAdmin)}
	if len(names) == 0 {
		return nil, wrong(table, "it has no verbs; write verbs = [...] with some of %s", strings.Join(all, ", "))
	}
	var verbs []serve.Verb
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, wrong(slices.Concat(table, toml.Key{"verbs"}), "there is no verb %q; there are %s", name, strings.Join(all, ", "))
		}
		verbs = append(verbs, serve.Verb(name))
	}
	return verbs, nil
}

func (p *Policy) addNamespace(name string, t namespaceTable) error {
	key, prefix := toml.Key{"namespace", name}, name+"/"
	if t.Prefix != "" {
		key, prefix = append(key, "prefix"), string(t.Prefix)
	}
	if err := driver.CheckName(prefix); err != nil {
		return wrong(key, "the prefix can't begin a name: %v", err)
	}
	for _, other := range slices.Sorted(maps.Keys(p.namespaces)) {
		n := p.namespaces[other]
		if strings.HasPrefix(prefix, n.Prefix) || strings.HasPrefix(n.Prefix, prefix) {
			return wrong(key, "%q and %q, the prefix of [namespace.%s], overlap, so one would see the locks of the other; "+
				"end both with a slash, and put none below the other", prefix, n.Prefix, other)
		}
	}
	p.namespaces[name] = Namespace{Name: name, Prefix: prefix, MaxTTL: time.Duration(t.MaxTTL)}
	return nil
}

// rights returns what the settings of a table say.
func (p *Policy) rights(key toml.Key, t rightsTable) (Rights, error) {
	r := Rights{Name: key.String(), Prefixes: t.Prefixes, Until: time.Time(t.Until)}
	var err error
	if r.Verbs, err = verbsOf(key, t.Verbs); err != nil {
		return Rights{}, err
	}
	if t.Namespace == "" {
		if len(t.Prefixes) == 0 {
			return Rights{}, wrong(key, `it says neither namespace nor prefixes; write namespace = "NAME", or prefixes = [""] for all locks of the store`)
		}
		return r, nil
	}
	n, ok := p.namespaces[string(t.Namespace)]
	if !ok {
		return Rights{}, wrong(slices.Concat(key, toml.Key{"namespace"}), "there is no [namespace.%s]; write one", t.Namespace)
	}
	r.Namespace, r.prefix, r.maxTTL = n.Name, n.Prefix, n.MaxTTL
	return r, nil
}

func (p *Policy) addToken(name string, t tokenTable) error {
	key := toml.Key{"token", name}
	if t.SHA256 == (digest{}) {
		return wrong(key, "it has no sha256; snib serve token %s makes a token and prints this line", name)
	}
	if other, ok := p.tokens[t.SHA256]; ok {
		return wrong(slices.Concat(key, toml.Key{"sha256"}), "it is the same token as %s; make one for each", other.Name)
	}
	r, err := p.rights(key, t.rightsTable)
	p.tokens[t.SHA256] = r
	return err
}

func (p *Policy) addCertificate(name string, t certificateTable) error {
	key := toml.Key{"certificate", name}
	if (t.DNS == "") == (t.URI == "") {
		return wrong(key, `it must say one of dns and uri, such as dns = "backup.example.com"`)
	}
	r, err := p.rights(key, t.rightsTable)
	p.certificates = append(p.certificates, certificateEntry{string(t.DNS), string(t.URI), r})
	return err
}
