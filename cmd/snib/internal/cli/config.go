package cli

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// configVar is the environment variable that names the configuration file.
const configVar = "SNIB_CONFIG"

// systemConfig is the configuration file of a host, for users who have none.
const systemConfig = "/etc/snib/config.toml"

// A config is the configuration file. docs/command.md describes it.
type config struct {
	path string // "" if there is no file

	Store  string            `toml:"store"`  // of a command that names none: a name in Stores, or a URL
	Stores map[string]string `toml:"stores"` // URLs by names
	// The default file is no store: a host whose variable was lost must not have a lock of its own.
	StoreRequired bool `toml:"store-required"`

	Policies map[string]policy `toml:"policy"` // by the prefixes of locks' names
}

// A policy is what holds for the locks whose names begin with a prefix. It binds those who use
// the command with this file, and nobody else.
type policy struct {
	TTL           duration `toml:"ttl"`      // the default of --ttl
	MaxTTL        duration `toml:"max-ttl"`  // the longest --ttl
	MaxHold       duration `toml:"max-hold"` // the longest --max-hold, and its default
	RequireReason bool     `toml:"require-reason"`

	origin string // for messages
}

// UnmarshalText reads a duration in the configuration file, which has the syntax of a flag.
func (d *duration) UnmarshalText(text []byte) error { return d.Set(string(text)) }

// configPath returns the file that a user means, or "" for none, and whether it must exist.
func configPath() (path string, required bool) {
	switch path := os.Getenv(configVar); path {
	case os.DevNull:
		return "", false
	case "":
	default:
		return path, true
	}
	if dir, err := os.UserConfigDir(); err == nil {
		path := filepath.Join(dir, "snib", "config.toml")
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, false
		}
	}
	return systemConfig, false
}

// loadConfig reads the configuration file, once. Without one, it returns an empty configuration.
func (a *app) loadConfig() (*config, error) {
	if a.config != nil {
		return a.config, nil
	}
	path, required := configPath()
	c := &config{path: path}
	meta, err := toml.DecodeFile(path, c)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
		c.path = ""
	case err != nil:
		return nil, failf(exitConfig, "%s: %v", path, err)
	default:
		if unknown := meta.Undecoded(); len(unknown) > 0 {
			return nil, failf(exitConfig, "%s: there is no setting %s", path, unknown[0])
		}
		if err := c.check(); err != nil {
			return nil, err
		}
		a.verbosef("configuration %s", path)
	}
	if !c.StoreRequired && !required && path != systemConfig && path != "" {
		var host config // what a host forbids, it forbids to users who have a file of their own, too
		if _, err := toml.DecodeFile(systemConfig, &host); err == nil {
			c.StoreRequired = host.StoreRequired
		}
	}
	a.config = c
	return c, nil
}

// check reports values that can't be right.
func (c *config) check() error {
	for name, store := range c.Stores {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			return failf(exitConfig, "%s: stores: %q is no name of a store: it is empty, or has a colon, a slash or a space", c.path, name)
		}
		if !strings.Contains(store, ":") {
			return failf(exitConfig, "%s: stores: %s is no URL; see snib help", c.path, name)
		}
	}
	if c.Store != "" && !strings.Contains(c.Store, ":") && c.Stores[c.Store] == "" {
		return failf(exitConfig, "%s: store: %s", c.path, c.noStore(c.Store))
	}
	for prefix, p := range c.Policies {
		switch {
		case p.MaxTTL.set && p.MaxTTL.value < minTTL:
			return failf(exitConfig, "%s: policy %q: max-ttl %v is shorter than %v, the shortest TTL", c.path, prefix, p.MaxTTL.value, minTTL)
		case p.TTL.set && p.TTL.value < minTTL:
			return failf(exitConfig, "%s: policy %q: ttl %v is shorter than %v, the shortest TTL", c.path, prefix, p.TTL.value, minTTL)
		case p.TTL.set && p.MaxTTL.set && p.TTL.value > p.MaxTTL.value:
			return failf(exitConfig, "%s: policy %q: ttl %v is longer than max-ttl %v", c.path, prefix, p.TTL.value, p.MaxTTL.value)
		case p.MaxHold.set && p.MaxHold.value == 0:
			return failf(exitConfig, "%s: policy %q: max-hold is zero", c.path, prefix)
		}
	}
	return nil
}

// noStore says that there is no store of that name.
func (c *config) noStore(name string) string {
	names := slices.Sorted(maps.Keys(c.Stores))
	return "there is no store " + printable(name) + "; there are " + strings.Join(names, ", ")
}

// errEmptyURL is the error for a URL that is empty, as that of a variable which was lost. It does
// not mean the default file: then each host would have the lock.
func errEmptyURL(what string) error {
	return failf(exitConfig, "%s is empty, and names no store; leave it out for the SQLite file of this host", what)
}

// storeURL returns the URL of the store that the user named by given, by $SNIB_URL, or in the
// configuration file. It returns "" if nothing names a store.
func (a *app) storeURL(given string) (string, error) {
	c, err := a.loadConfig()
	if err != nil {
		return "", err
	}
	fromEnv, inEnv := os.LookupEnv(urlVar)
	switch {
	case given != "":
	case a.urlFlag != nil && a.urlFlag.Changed:
		return "", errEmptyURL("--url")
	case inEnv && fromEnv == "":
		return "", errEmptyURL("$" + urlVar)
	}
	store := cmp.Or(given, fromEnv, c.Store)
	if store == "" && c.StoreRequired {
		return "", failf(exitConfig, "no store was named, and store-required in the configuration forbids the default file: give --url, or set $%s", urlVar)
	}
	if store == "" || strings.Contains(store, ":") || len(c.Stores) == 0 {
		return store, nil
	}
	if named, ok := c.Stores[store]; ok {
		return named, nil
	}
	return "", failf(exitConfig, "%s: %s", c.path, c.noStore(store))
}

// policy returns the policy for a lock: that of the longest prefix of its name.
func (a *app) policy(name string) (policy, error) {
	c, err := a.loadConfig()
	if err != nil {
		return policy{}, err
	}
	longest := -1
	var found policy
	for prefix, p := range c.Policies {
		if strings.HasPrefix(name, prefix) && len(prefix) > longest {
			longest, found = len(prefix), p
			found.origin = "for names that begin with " + printable(prefix) + " in " + c.path
			if prefix == "" {
				found.origin = "for all names in " + c.path
			}
		}
	}
	return found, nil
}

// limitTTL applies a policy to --ttl, whose default may be longer than what is allowed.
func (p policy) limitTTL(ttl *duration, usual time.Duration) error {
	switch {
	case ttl.set && p.MaxTTL.set && ttl.value > p.MaxTTL.value:
		return usagef("--ttl %v is longer than %v, the max-ttl %s", ttl.value, p.MaxTTL.value, p.origin)
	case ttl.set:
	case p.TTL.set:
		ttl.value, ttl.set = p.TTL.value, true
	case p.MaxTTL.set && usual > p.MaxTTL.value:
		ttl.value, ttl.set = p.MaxTTL.value, true
	}
	return nil
}

// limitHold applies a policy to the flag that says how long a lock is held at most.
func (p policy) limitHold(flag string, hold *duration) error {
	switch {
	case !p.MaxHold.set:
	case hold.set && hold.value > p.MaxHold.value:
		return usagef("%s %v is longer than %v, the max-hold %s", flag, hold.value, p.MaxHold.value, p.origin)
	case !hold.set:
		hold.value, hold.set = p.MaxHold.value, true
	}
	return nil
}

// configFindings judges who may read the configuration file, if a URL in it has a password.
func (a *app) configFindings() []backend.Finding {
	c := a.config
	if !hasPassword(c.Store) && !slices.ContainsFunc(slices.Collect(maps.Values(c.Stores)), hasPassword) {
		return nil
	}
	if f, open := backend.ExamineSecret(c.path); open {
		return []backend.Finding{f}
	}
	return nil
}

func hasPassword(store string) bool {
	u, err := url.Parse(store)
	if err != nil {
		return false
	}
	_, has := u.User.Password()
	return has
}

// checkReason reports that a policy wants a reason for breaking the holds of a lock.
func (a *app) checkReason(name, reason string) error {
	p, err := a.policy(name)
	if err == nil && p.RequireReason && strings.TrimSpace(reason) == "" {
		err = usagef("a reason is required %s", p.origin)
	}
	return err
}
