package cli

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

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

	Store string `toml:"store"` // the URL for a command that names none
	// The default file is no store: a host whose variable was lost must not have a lock of its own.
	StoreRequired bool `toml:"store-required"`
}

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
		// A home that is no folder, such as /dev/null, has no file either.
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
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
	unknown, err := decodeFile(path, c)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
		c.path = ""
	case err != nil:
		return nil, failf(exitConfig, "%s: %v", path, err)
	case len(unknown) > 0:
		return nil, failf(exitConfig, "%s: there is no setting %s", path, unknown[0])
	case c.Store != "" && !strings.Contains(c.Store, ":"): // it may be a password
		return nil, failf(exitConfig, "%s: store is no URL; see snib help stores", path)
	default:
		a.verbosef("configuration %s", path)
	}
	if !c.StoreRequired && path != systemConfig && path != "" {
		var host config // what a host forbids, it forbids to users who have a file of their own, too
		if _, err := decodeFile(systemConfig, &host); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, failf(exitConfig, "%s: %v", systemConfig, err)
		}
		c.StoreRequired = host.StoreRequired
	}
	a.config = c
	return c, nil
}

// decodeFile reads a configuration file into c, and returns the settings that there are not.
func decodeFile(path string, c *config) (unknown []toml.Key, err error) {
	text, err := backend.ReadFile(path)
	if err != nil {
		return nil, err
	}
	meta, err := toml.Decode(string(text), c)
	return meta.Undecoded(), err
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
	return store, nil
}

// configFindings judges who may read the configuration file, if the URL in it has a password.
func (a *app) configFindings() []backend.Finding {
	c := a.config
	if len(findPasswords(c.Store)) == 0 {
		return nil
	}
	const remedy = "write the password into a file of its own, and name that in password-file"
	if f, open := backend.ExamineSecret(c.path, remedy); open {
		return []backend.Finding{f}
	}
	return nil
}

// overwrite overwrites parts of a text, each given by its begin and its end.
func overwrite(text []byte, parts [][2]int) {
	for _, at := range parts {
		for i := at[0]; i < at[1]; i++ {
			text[i] = 'x'
		}
	}
}

// hidePasswords overwrites the passwords in the URLs of the arguments, the environment and the
// configuration that a message repeats, quoted or not.
func (a *app) hidePasswords(text string) string {
	given := append(slices.Clone(a.args), os.Getenv(urlVar))
	if a.config != nil {
		given = append(given, a.config.Store)
	}
	for _, arg := range given {
		if secrets := findPasswords(arg); secrets != nil {
			hidden, begin := []byte(arg), strings.Index(arg, "://")
			overwrite(hidden, secrets)
			quoted := strings.Trim(strconv.Quote(arg[begin:]), `"`)
			text = strings.NewReplacer(arg[begin:], string(hidden[begin:]), quoted, string(hidden[begin:])).Replace(text)
		}
	}
	return text
}

// findPasswords returns the begin and the end of each password in an argument that is or
// contains a URL, valid or not.
func findPasswords(arg string) [][2]int {
	const parameter = "password="
	var all [][2]int
	_, rest, isURL := strings.Cut(arg, "://")
	if !isURL {
		return nil
	}
	begin := len(arg) - len(rest)
	if colon, at := strings.Index(rest, ":"), strings.LastIndex(rest, "@"); colon >= 0 && colon < at {
		all = append(all, [2]int{begin + colon + 1, begin + at})
	}
	for from := begin; ; {
		i := strings.Index(arg[from:], parameter)
		if i < 0 {
			return all
		}
		from += i + len(parameter)
		end := len(arg)
		if i := strings.Index(arg[from:], "&"); i >= 0 {
			end = from + i
		}
		all = append(all, [2]int{from, end})
	}
}
