// Package backend turns the URL of a store into its driver. It is the only place that knows all drivers.
package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/sqlitelock"
)

// ErrConfig means that a URL, or what it points to, can't be a store of ours.
const ErrConfig driver.Sentinel = "bad store"

// A Scheme is a kind of store that a URL can name.
type Scheme struct {
	Name   string
	Syntax string // "sqlite:PATH"
	Doc    string // one line for the help

	resolve func(rest string) (place, error)
}

// A place is where a store is, before anything is opened or made.
type place struct {
	url   string // canonical: the same for every way to write it; without secrets
	empty bool   // nothing was ever made there, so nobody holds anything
	open  func() (driver.Driver, error)
}

// Schemes are the kinds of stores, in the order in which the help shows them.
func Schemes() []Scheme {
	return []Scheme{
		{"sqlite", "sqlite:PATH", "a SQLite file on this host; the default", sqlite},
		{"memory", "memory:", "inside this one process: for trying things out, it excludes nobody else", memory},
	}
}

// A Store is an open driver and the URL that it came from.
type Store struct {
	driver.Driver
	URL string // canonical, without secrets
}

// Private reports whether nobody outside this process can see the store.
func (s *Store) Private() bool { return strings.HasPrefix(s.URL, "memory:") }

// Open opens the store at url, or the default one if url is empty. With create unset a store that does not exist yet is
// not made: it is an empty one.
func Open(url string, create bool) (*Store, error) {
	if url == "" && create {
		if err := makeStateFolder(); err != nil {
			return nil, err
		}
	}
	at, err := resolve(url)
	if err != nil {
		return nil, err
	}
	if at.empty && !create {
		return &Store{memlock.New(), at.url}, nil
	}
	d, err := at.open()
	if err != nil {
		return nil, explain(at.url, err)
	}
	return &Store{d, at.url}, nil
}

// resolve finds where url points to without touching it.
func resolve(url string) (place, error) {
	if url == "" {
		file, err := DefaultFile()
		if err != nil {
			return place{}, err
		}
		return sqlite(file)
	}
	name, rest, ok := strings.Cut(url, ":")
	if !ok {
		return place{}, fmt.Errorf("%w URL: it has no scheme; %s", ErrConfig, offer("", url))
	}
	for _, s := range Schemes() {
		if s.Name == name {
			return s.resolve(rest)
		}
	}
	// Only the scheme is repeated: what follows may hold a password.
	return place{}, fmt.Errorf("%w URL: unknown scheme %q; %s", ErrConfig, name, offer(name, ""))
}

// offer says what would have been right.
func offer(name, path string) string {
	var all []string
	for _, s := range Schemes() {
		if name != "" && distance(name, s.Name) <= 2 {
			return fmt.Sprintf("did you mean %s?", s.Syntax)
		}
		all = append(all, s.Syntax)
	}
	if strings.ContainsRune(path, '/') {
		return fmt.Sprintf("did you mean sqlite:%s?", path)
	}
	return "there are " + strings.Join(all, " and ")
}

// DefaultFile is the SQLite file that is used when no URL is given.
func DefaultFile() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // a relative one is to be ignored, says its standard
		return filepath.Join(dir, "snib", "locks.db"), nil
	}
	if os.Geteuid() == 0 {
		return "/var/lib/snib/locks.db", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%w: there is no default without a home folder (%w); say --url sqlite:PATH", ErrConfig, err)
	}
	return filepath.Join(home, ".local", "state", "snib", "locks.db"), nil
}

// makeStateFolder makes the folder of the default file. It is for its user only: whoever can write to the file can free
// each lock in it.
func makeStateFolder() error {
	file, err := DefaultFile()
	if err != nil {
		return err
	}
	return os.MkdirAll(filepath.Dir(file), 0o700)
}

func sqlite(path string) (place, error) {
	if path == "" {
		return place{}, fmt.Errorf("%w URL: sqlite: needs a path, such as sqlite:/var/lib/snib/locks.db", ErrConfig)
	}
	path, err := canonical(path)
	if err != nil {
		return place{}, err
	}
	_, err = os.Lstat(path)
	return place{
		url:   "sqlite:" + path,
		empty: errors.Is(err, fs.ErrNotExist),
		open:  func() (driver.Driver, error) { return sqlitelock.Open(path) },
	}, nil
}

// canonical makes path the same for all ways to reach a file, as far as that exists already.
func canonical(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file, nil
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path)), nil
	}
	return path, nil
}

func memory(rest string) (place, error) {
	if rest != "" {
		return place{}, fmt.Errorf("%w URL: memory: takes nothing after the colon", ErrConfig)
	}
	open := func() (driver.Driver, error) { return memlock.New(), nil }
	return place{url: "memory:", empty: true, open: open}, nil
}

// explain tells what can be done about a store that did not open.
func explain(url string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s: its folder does not exist; make it, or choose another file with --url", ErrConfig, url)
	case errors.Is(err, driver.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrConfig, in(url, err)) // it says what would be right
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; choose a file that you may write with --url sqlite:PATH", in(url, err))
	}
	return in(url, err)
}

// in says where an error happened, unless it says so itself.
func in(url string, err error) error {
	_, path, _ := strings.Cut(url, ":")
	if path != "" && strings.Contains(err.Error(), path) {
		return err
	}
	return fmt.Errorf("%s: %w", url, err)
}

// distance is the number of letters to insert, delete or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
