// Package backend turns the URL of a store into its driver. It is the only place that knows all drivers.
package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

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
	Doc    string // one line for the help; empty for a variant of the one before

	resolve func(rest string) (place, error)
}

// Prefix is what the URLs of the kind begin with.
func (s Scheme) Prefix() string {
	if strings.HasPrefix(s.Syntax, s.Name+"://") {
		return s.Name + "://"
	}
	return s.Name + ":"
}

// A place is where a store is, before anything is opened or made.
type place struct {
	url   string // canonical: the same for every way to write it; without secrets
	empty bool   // nothing was ever made there, so nobody holds anything
	open  func() (driver.Driver, error)

	transport *transport // nil if there is no server
}

// Schemes are the kinds of stores, in the order in which the help shows them.
func Schemes() []Scheme {
	all := []Scheme{{"sqlite", "sqlite:PATH", "a SQLite file on this host; the default", sqlite}}
	add := func(k redisKind, syntax, doc string) {
		all = append(all, Scheme{k.scheme, syntax, doc, k.resolve}, Scheme{k.secure().scheme, withTLS(syntax), "", k.secure().resolve})
	}
	add(oneRedis, "redis://HOST:PORT/DB", "one Redis server; rediss:// is with TLS, here and below")
	add(redisSentinel, "redis+sentinel://HOST:PORT,.../MASTER/DB", "the Redis that these Sentinels call MASTER")
	add(redisCluster, "redis+cluster://HOST:PORT,...", "a Redis Cluster, known by some of its nodes")
	return append(all,
		Scheme{"redlock", "redlock://HOST:PORT,...", "a majority of independent Redis servers; redlocks:// is with TLS", redlockNodes.resolve},
		Scheme{"redlocks", "redlocks://HOST:PORT,...", "", redlockNodes.secure().resolve},
		Scheme{"postgres", "postgres://USER@HOST:PORT/DATABASE", "a table in PostgreSQL", postgres},
		Scheme{"postgresql", "postgresql://USER@HOST:PORT/DATABASE", "", postgres},
		Scheme{"mysql", "mysql://USER@HOST:PORT/DATABASE", "a table in MySQL or MariaDB", mySQL},
		Scheme{"zk", "zk://HOST:PORT,.../ROOT", "a ZooKeeper ensemble; zks:// is with TLS", zooKeeper.resolve},
		Scheme{"zks", "zks://HOST:PORT,.../ROOT", "", secureZooKeeper.resolve},
		Scheme{"etcd", "etcd://HOST:PORT,...", "an etcd cluster; etcds:// is with TLS", etcd.resolve},
		Scheme{"etcds", "etcds://HOST:PORT,...", "", secureEtcd.resolve},
		Scheme{"memory", "memory:", "inside this one process: for trying things out, it excludes nobody else", memory})
}

// A Store is an open driver and the URL that it came from.
type Store struct {
	driver.Driver
	URL string // canonical, without secrets

	transport *transport
}

// Private reports whether nobody outside this process can see the store.
func (s *Store) Private() bool { return strings.HasPrefix(s.URL, "memory:") }

// Open opens the store at url, or the default one if url is empty. With create unset a store that does not exist yet is
// not made: it is an empty one. If another attempt may succeed, the error matches [driver.ErrUnavailable].
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
		return &Store{Driver: memlock.New(), URL: at.url}, nil
	}
	d, err := at.open()
	if errors.Is(err, ErrConfig) {
		return nil, err // it says what is wrong where
	}
	if err != nil {
		return nil, marked(in(at.url, err))
	}
	return &Store{d, at.url, at.transport}, nil
}

// resolve finds where url points to without touching it.
func resolve(url string) (place, error) {
	if url == "" {
		file, err := DefaultFile()
		if err != nil {
			return place{}, err
		}
		return sqliteFile(file)
	}
	name, rest, ok := strings.Cut(url, ":")
	if !ok || strings.ContainsFunc(name, notInScheme) {
		return place{}, fmt.Errorf("%w URL: it has no scheme; %s", ErrConfig, offer("", url))
	}
	for _, s := range Schemes() {
		if s.Name == name {
			return s.resolve(rest)
		}
	}
	if port, _, _ := strings.Cut(rest, "/"); port != "" && strings.Trim(port, "0123456789") == "" {
		return place{}, fmt.Errorf("%w URL: it has no scheme; did you mean redis://%s:%s?", ErrConfig, name, port)
	}
	// Only the scheme is repeated: what follows may hold a password.
	return place{}, fmt.Errorf("%w URL: unknown scheme %q; %s", ErrConfig, name, offer(name, ""))
}

func notInScheme(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("+-._", r))
}

// offer says what would have been right. It does not repeat the path if that may be something else with a password in it.
func offer(name, path string) string {
	best, near := Scheme{}, 3
	var all []string
	for _, s := range Schemes() {
		if d := distance(name, s.Name); name != "" && d < near {
			best, near = s, d
		}
		if s.Doc != "" {
			all = append(all, s.Syntax)
		}
	}
	switch {
	case best.Name != "":
		return fmt.Sprintf("did you mean %s?", best.Syntax)
	case strings.ContainsRune(path, '/') && !strings.ContainsAny(path, "@:"):
		return fmt.Sprintf("did you mean sqlite:%s?", path)
	}
	return "there are " + strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
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

// makeStateFolder makes the folder of the default file. It is for its user only: whoever can write
// to the folder can put another file in the place of that one.
func makeStateFolder() error {
	file, err := DefaultFile()
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case int(owner) != os.Geteuid():
		return fmt.Errorf("%w: %s, the folder of the default file, belongs to uid %d; name a file of your own with --url sqlite:PATH",
			ErrConfig, dir, owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: %s, the folder of the default file, has mode %#o, so others can replace the file; chmod 700 it",
			ErrConfig, dir, info.Mode().Perm())
	}
	return nil
}

const sqliteForm = "sqlite:PATH[?mode=0660]"

// sqlite is the [Scheme] of a SQLite file. What follows the last question mark is parameters.
func sqlite(rest string) (place, error) {
	path, query, _ := cutLast(rest, "?")
	if path == "" {
		return place{}, fmt.Errorf("%w URL: sqlite: needs a path, such as sqlite:/var/lib/snib/locks.db", ErrConfig)
	}
	var opts []sqlitelock.Option
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch mode, err := strconv.ParseUint(value, 8, 12); {
		case pair == "":
		case name != "mode":
			return place{}, fmt.Errorf("%w URL: sqlite: it has a parameter that there is not; the form is %s", ErrConfig, sqliteForm)
		case err != nil || len(opts) > 0:
			return place{}, fmt.Errorf("%w URL: sqlite: mode is one octal number, such as 0660; the form is %s", ErrConfig, sqliteForm)
		default:
			opts = append(opts, sqlitelock.Mode(fs.FileMode(mode)))
		}
	}
	return sqliteFile(path, opts...)
}

// cutLast is strings.Cut around the last sep.
func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

func sqliteFile(path string, opts ...sqlitelock.Option) (place, error) {
	path, err := canonical(path)
	if err != nil {
		return place{}, err
	}
	_, err = os.Lstat(path)
	return place{
		url:   "sqlite:" + path,
		empty: errors.Is(err, fs.ErrNotExist),
		open: func() (driver.Driver, error) {
			d, err := sqlitelock.Open(path, opts...)
			if err != nil {
				return nil, explainSQLite("sqlite:"+path, err)
			}
			return d, nil
		},
	}, nil
}

// explainSQLite tells what can be done about a file that did not open.
func explainSQLite(url string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s: its folder does not exist; make it, or choose another file with --url", ErrConfig, url)
	case errors.Is(err, driver.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrConfig, in(url, err)) // it says what would be right
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; choose a file that you may write with --url sqlite:PATH", in(url, err))
	}
	return err
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
