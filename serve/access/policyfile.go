package access

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
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
	Roles        map[string]roleTable        `toml:"role"`
	Namespaces   map[string]namespaceTable   `toml:"namespace"`
	Tokens       map[string]tokenTable       `toml:"token"`
	Certificates map[string]certificateTable `toml:"certificate"`
}

type roleTable struct {
	Verbs list `toml:"verbs"`
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
	DNS     text `toml:"dns"`
	URI     text `toml:"uri"`
	Email   text `toml:"email"`
	Subject text `toml:"subject"`
}

// A rightsTable has the settings that tokens and certificates share.
type rightsTable struct {
	Verbs     list `toml:"verbs"`
	Roles     list `toml:"roles"`
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

// LoadPolicy reads a policy file. An error says the line, what is wrong there, and what would be
// right. Nothing in it is taken from the file but names.
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
		return nil, lineError(err)
	}
	for _, key := range meta.Keys() { // the decoder leaves out what is no table
		isTable := meta.Type(key...) == "Hash" || key[0] == "trusted-proxies" || key[0] == "hosts"
		if len(key) == 1 && !isTable {
			return nil, locate(content, wrong(key, "%s must be a table, so write [%s.NAME] and the settings below it", key, key))
		}
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, locate(content, unknownSetting(unknown[0]))
	}
	p, err := file.policy()
	if err != nil {
		return nil, locate(content, err)
	}
	return p, nil
}

// A settingError says what is wrong with a setting, or with a table.
type settingError struct {
	key  toml.Key
	text string
}

func (e *settingError) Error() string { return e.text }

func wrong(key toml.Key, format string, args ...any) error {
	return &settingError{key, fmt.Sprintf(format, args...)}
}

// unknownSetting reports a key that no table has. A misspelt setting must not be ignored: it may be
// a bound.
func unknownSetting(key toml.Key) error {
	table, known := "the file", reflect.TypeFor[policyFile]()
	if len(key) > 2 {
		table = key[:2].String()
		for _, f := range reflect.VisibleFields(known) {
			if f.Tag.Get("toml") == key[0] {
				known = f.Type.Elem()
			}
		}
	}
	var names []string
	for _, f := range reflect.VisibleFields(known) {
		if name := f.Tag.Get("toml"); name != "" {
			names = append(names, name)
		}
	}
	name := key[min(len(key)-1, 2)]
	if len(key) == 2 {
		name = key[0]
	}
	return wrong(key, "%s has no setting %q; it may have %s", table, name, strings.Join(names, ", "))
}

// locate returns a settingError with the line of its key. The decoder tells lines only in errors,
// so the value of the key is decoded into what takes none.
func locate(content string, err error) error {
	var e *settingError
	if !errors.As(err, &e) {
		return err
	}
	values := map[string]toml.Primitive{}
	meta, err := toml.Decode(content, &values)
	for i := 0; err == nil && i < len(e.key); i++ {
		p := values[e.key[i]]
		if values = nil; i < len(e.key)-1 {
			err = meta.PrimitiveDecode(p, &values)
		} else {
			err = meta.PrimitiveDecode(p, rejection{e})
		}
	}
	return lineError(err)
}

// A rejection is a destination that takes no value.
type rejection struct{ err error }

// UnmarshalTOML implements [toml.Unmarshaler].
func (r rejection) UnmarshalTOML(any) error { return r.err }

// goType names a type of this package in an error of the decoder.
var goType = regexp.MustCompile(`type mismatch for \S+: `)

// lineError returns an error of the decoder as "line N: what was wrong".
func lineError(err error) error {
	var p toml.ParseError
	if !errors.As(err, &p) {
		return errors.New(goType.ReplaceAllString(strings.TrimPrefix(err.Error(), "toml: "), ""))
	}
	if p.Position.Line == 0 {
		return errors.New(p.Message)
	}
	return fmt.Errorf("line %d: %s", p.Position.Line, p.Message)
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
	for name, t := range sorted(f.Roles) {
		if _, err := verbsOf(toml.Key{"role", name}, t.Verbs); err != nil {
			return nil, err
		}
	}
	for name, t := range sorted(f.Namespaces) {
		if err := p.addNamespace(name, t); err != nil {
			return nil, err
		}
	}
	for name, t := range sorted(f.Tokens) {
		if err := p.addToken(f, name, t); err != nil {
			return nil, err
		}
	}
	for name, t := range sorted(f.Certificates) {
		if err := p.addCertificate(f, name, t); err != nil {
			return nil, err
		}
	}
	if len(p.tokens)+len(p.certificates) == 0 {
		return nil, errors.New("the policy admits nobody: it has no [token.NAME] or [certificate.NAME]")
	}
	return p, nil
}

// sorted yields tables in the order of their names.
func sorted[T any](tables map[string]T) func(func(string, T) bool) {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			if !yield(name, tables[name]) {
				return
			}
		}
	}
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
		return nil, wrong(table, "%s has no verbs; write verbs = [...] with some of %s", table, strings.Join(all, ", "))
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
		return wrong(key, "the prefix of %s can't begin a name: %v", key[:2], err)
	}
	for other, n := range sorted(p.namespaces) {
		if strings.HasPrefix(prefix, n.Prefix) || strings.HasPrefix(n.Prefix, prefix) {
			return wrong(key, "%q and %q, the prefix of [namespace.%s], overlap, so one would see the locks of the other; "+
				"end both with a slash, and put none below the other", prefix, n.Prefix, other)
		}
	}
	p.namespaces[name] = Namespace{Name: name, Prefix: prefix, MaxTTL: time.Duration(t.MaxTTL)}
	return nil
}

// rights returns what the settings of a table say.
func (p *Policy) rights(f *policyFile, key toml.Key, t rightsTable) (Rights, error) {
	r := Rights{Name: key.String(), Prefixes: t.Prefixes, Until: time.Time(t.Until)}
	for _, role := range t.Roles {
		table, ok := f.Roles[role]
		if !ok {
			return Rights{}, wrong(slices.Concat(key, toml.Key{"roles"}), "there is no [role.%s]%s", role, orOneOf("role", f.Roles))
		}
		t.Verbs = append(slices.Clip(t.Verbs), table.Verbs...)
	}
	var err error
	if r.Verbs, err = verbsOf(key, t.Verbs); err != nil {
		return Rights{}, err
	}
	if t.Namespace == "" {
		if len(t.Prefixes) == 0 {
			return Rights{}, wrong(key, `%s says neither namespace nor prefixes; write namespace = "NAME", or prefixes = [""] for all locks of the store`, key)
		}
		return r, nil
	}
	n, ok := p.namespaces[string(t.Namespace)]
	if !ok {
		return Rights{}, wrong(slices.Concat(key, toml.Key{"namespace"}), "there is no [namespace.%s]%s", t.Namespace, orOneOf("namespace", p.namespaces))
	}
	r.Namespace, r.prefix, r.maxTTL = n.Name, n.Prefix, n.MaxTTL
	return r, nil
}

// orOneOf names the tables of a section that there are.
func orOneOf[V any](section string, tables map[string]V) string {
	if len(tables) == 0 {
		return "; write one"
	}
	return "; there are [" + section + "." + strings.Join(slices.Sorted(maps.Keys(tables)), "], ["+section+".") + "]"
}

func (p *Policy) addToken(f *policyFile, name string, t tokenTable) error {
	key := toml.Key{"token", name}
	if t.SHA256 == (digest{}) {
		return wrong(key, "%s has no sha256; snib serve token %s makes a token and prints this line", key, name)
	}
	if other, ok := p.tokens[t.SHA256]; ok {
		return wrong(slices.Concat(key, toml.Key{"sha256"}), "%s is the same token as %s; make one for each", key, other.Name)
	}
	r, err := p.rights(f, key, t.rightsTable)
	p.tokens[t.SHA256] = r
	return err
}

func (p *Policy) addCertificate(f *policyFile, name string, t certificateTable) error {
	key := toml.Key{"certificate", name}
	said := 0
	for _, v := range []text{t.DNS, t.URI, t.Email, t.Subject} {
		if v != "" {
			said++
		}
	}
	if said != 1 {
		return wrong(key, `%s must say one of dns, uri, email and subject, such as dns = "backup.example.com"`, key)
	}
	r, err := p.rights(f, key, t.rightsTable)
	p.certificates = append(p.certificates, certificateEntry{string(t.DNS), string(t.URI), string(t.Email),
		string(t.Subject), r})
	return err
}
