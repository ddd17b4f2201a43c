// Package backend opens the driver for the URL of a store. It is the only
// package that knows all drivers.
package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/sqlitelock"
)

// ErrConfig means that a URL, or what it points to, can't be a store for snib.
const ErrConfig driver.Sentinel = "bad store"

// A Scheme is a kind of store that a URL can name.
type Scheme struct {
	Name   string
	Syntax string // "sqlite:PATH"
	Doc    string // one line for the help; empty for a variant of the scheme before

	resolve func(rest string) (location, error)
}

// Prefix returns the beginning of the scheme's URLs.
func (s Scheme) Prefix() string {
	if s.Name == sqliteScheme || s.Name == memoryScheme {
		return s.Name + ":"
	}
	return s.Name + "://"
}

// A location is where a store is. Nothing has been opened or created yet.
type location struct {
	url   string // canonical: the same for every way to write it; without secrets
	empty bool   // nothing was ever created there, so nobody holds anything
	open  func(context.Context) (driver.Driver, error)

	// openMarks opens the store as a database that can keep marks, but does not connect; nil if it
	// is none.
	openMarks func() (*sql.DB, fence.Dialect, error)

	secrets  []string // files that contain passwords and keys; an empty name stands for none
	graceOff bool     // the URL has failover-grace=off: the store grants locks at once after a restart
	unserved string   // see urlKind
}

// Schemes returns the kinds of stores, in the order in which the help shows them.
func Schemes() []Scheme {
	all := []Scheme{{sqliteScheme, sqliteSyntax, "a SQLite file on this host; the default", resolveSQLite}}
	for _, k := range serverKinds() {
		all = append(all, Scheme{k.scheme, k.syntax, k.doc, k.resolve})
		if !k.socket {
			all = append(all, Scheme{k.secure().scheme, k.secure().syntax, "", k.secure().resolve})
		}
	}
	return append(all,
		Scheme{"postgres", "postgres" + sqlSyntax, "a table in PostgreSQL", resolvePostgres},
		Scheme{"postgresql", "postgresql" + sqlSyntax, "", resolvePostgres},
		Scheme{"mysql", "mysql" + sqlSyntax, "a table in MariaDB", resolveMySQL},
		Scheme{memoryScheme, memoryScheme + ":", "in the memory of this process, for trials: it excludes no other process", resolveMemory})
}

// A Store is an open driver and the URL that it came from.
type Store struct {
	driver.Driver
	URL string // canonical, without secrets

	location
}

// The errors of Status, List, Break and Withdraw name the store.

// Status implements [driver.Inspector].
func (s *Store) Status(ctx context.Context, name string) (driver.Status, error) {
	st, err := s.Driver.Status(ctx, name)
	return st, withURL(s.URL, err)
}

// List implements [driver.Inspector].
func (s *Store) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	return withURL(s.URL, s.Driver.List(ctx, prefix, yield))
}

// Break implements [driver.Inspector].
func (s *Store) Break(ctx context.Context, name, id string) error {
	return withURL(s.URL, s.Driver.Break(ctx, name, id))
}

// Withdraw implements [driver.Inspector].
func (s *Store) Withdraw(ctx context.Context, name, id string) error {
	return withURL(s.URL, s.Driver.Withdraw(ctx, name, id))
}

// Private reports whether only this process can see the store.
func (s *Store) Private() bool { return strings.HasPrefix(s.URL, "memory:") }

// Withhold makes a store in memory grant nothing for a while, unless its URL says otherwise:
// another process may have granted its locks. It reports whether it does so.
func (s *Store) Withhold(d time.Duration) bool {
	if !s.Private() || s.graceOff {
		return false
	}
	s.Driver = withholding{s.Driver, time.Now().Add(d)}
	return true
}

// withholding is a driver that grants nothing until a time.
type withholding struct {
	driver.Driver
	until time.Time
}

// Acquire implements [driver.Driver].
func (w withholding) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if left := time.Until(w.until); left > 0 {
		return nil, &redislock.GraceError{Left: left}
	}
	return w.Driver.Acquire(ctx, req)
}

// A Purpose is what a store is opened for.
type Purpose uint8

const (
	Look  Purpose = iota // to look at locks: a store that does not exist is not created
	Take                 // to take locks
	Serve                // to take locks for clients of a service
)

// Open opens the store at url, or the default store if url is empty. To [Look] at a store that
// does not exist, it returns an empty one. If another try may succeed, the error matches
// [driver.ErrUnavailable]. The store outlives ctx.
func Open(ctx context.Context, url string, purpose Purpose) (*Store, error) {
	if url == "" && purpose != Look {
		if err := makeStateFolder(); err != nil {
			return nil, err
		}
	}
	at, err := resolve(url)
	if err != nil {
		return nil, err
	}
	if at.unserved != "" && purpose == Serve {
		return nil, fmt.Errorf("%w %s: %s", ErrConfig, at.url, at.unserved)
	}
	if at.empty && purpose == Look {
		return &Store{Driver: memlock.New(), URL: at.url}, nil
	}
	d, err := at.open(ctx)
	switch {
	case err == nil:
		return &Store{d, at.url, at}, nil
	case errors.Is(err, ErrConfig):
		return nil, err // it names the problem and the place
	case errors.Is(err, driver.ErrInvalid), Mismatched(err):
		return nil, fmt.Errorf("%w: %w", ErrConfig, withURL(at.url, err)) // it says what would be right
	}
	return nil, markTransient(withURL(at.url, err))
}

// Inherit returns a file that keeps a lock taken while a child process has it open, or nil if the
// store has none.
func (s *Store) Inherit(ctx context.Context, name, id string) (*os.File, error) {
	d, ok := s.Driver.(*sqlitelock.Driver)
	if !ok {
		return nil, nil
	}
	f, err := d.Inherit(ctx, name, id)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return f, err
}

// resolve returns the location of url without opening it.
func resolve(url string) (location, error) {
	if url == "" {
		file, err := DefaultFile()
		if err != nil {
			return location{}, err
		}
		return sqliteFile(file)
	}
	name, rest, ok := strings.Cut(url, ":")
	if !ok || strings.ContainsFunc(name, notInScheme) {
		return location{}, fmt.Errorf("%w URL: it has no scheme; %s", ErrConfig, suggest(url))
	}
	for _, s := range Schemes() {
		if s.Name == knownScheme(name) {
			return s.resolve(rest)
		}
	}
	// The message repeats only the scheme: the rest may contain a password.
	return location{}, fmt.Errorf("%w URL: unknown scheme %q; %s", ErrConfig, name, suggest(""))
}

// knownScheme returns the scheme that a URL means: Valkey's mean those of Redis.
func knownScheme(name string) string {
	if other, ok := strings.CutPrefix(name, "valkey"); ok {
		return "redis" + other
	}
	return name
}

// IsURL reports whether a text begins as the URL of a store.
func IsURL(text string) bool {
	name, rest, ok := strings.Cut(text, ":")
	for _, s := range Schemes() {
		if ok && s.Name == knownScheme(name) {
			return strings.HasPrefix(rest, "//") || s.Name == sqliteScheme || text == memoryScheme+":"
		}
	}
	return false
}

func notInScheme(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("+-._", r))
}

// suggest says which URL may have been meant. It does not repeat a path that may contain a
// password.
func suggest(path string) string {
	if strings.ContainsRune(path, '/') && !strings.ContainsAny(path, "@:") {
		return fmt.Sprintf("did you mean sqlite:%s?", path)
	}
	var all []string
	for _, s := range Schemes() {
		if s.Doc != "" {
			all = append(all, s.Prefix())
		}
	}
	return "there are " + strings.Join(all, ", ") + "; see snib help stores"
}

// DefaultFile returns the SQLite file that is used if no URL is given.
func DefaultFile() (string, error) {
	// The XDG specification says to ignore a relative path.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "snib", "locks.db"), nil
	}
	dir, err := stateFolder()
	if err != nil {
		return "", fmt.Errorf("%w: there is no default file without a home folder (%w); give --url sqlite:PATH", ErrConfig, err)
	}
	return filepath.Join(dir, "snib", "locks.db"), nil
}

// makeStateFolder creates the folder of the default file. Only its user may write to it:
// everybody who can write to the folder can replace the file.
func makeStateFolder() error {
	file, err := DefaultFile()
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return explainSQLite("sqlite:"+file, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return checkStateFolder(dir, info)
}

const (
	sqliteScheme = "sqlite"
	memoryScheme = "memory"
	sqliteSyntax = "sqlite:PATH[?mode=0660]"
)

// resolveSQLite is the resolve function of a SQLite file. Parameters follow the last question
// mark.
func resolveSQLite(rest string) (location, error) {
	path, query, _ := cutLast(rest, "?")
	if path == "" {
		return location{}, fmt.Errorf("%w URL: sqlite: needs a path, such as sqlite:/var/lib/snib/locks.db", ErrConfig)
	}
	var opts []sqlitelock.Option
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch mode, err := strconv.ParseUint(value, 8, 12); {
		case pair == "":
		case name != "mode":
			return location{}, fmt.Errorf("%w URL: sqlite: it has an unknown parameter; the form is %s", ErrConfig, sqliteSyntax)
		case err != nil || len(opts) > 0:
			return location{}, fmt.Errorf("%w URL: sqlite: mode is one octal number, such as 0660; the form is %s", ErrConfig, sqliteSyntax)
		default:
			opts = append(opts, sqlitelock.Mode(fs.FileMode(mode)))
		}
	}
	return sqliteFile(path, opts...)
}

// cutLast is like strings.Cut, but cuts around the last sep.
func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

func sqliteFile(path string, opts ...sqlitelock.Option) (location, error) {
	path, err := canonical(path)
	if err != nil {
		return location{}, err
	}
	_, err = os.Lstat(path)
	open := func(ctx context.Context) (driver.Driver, error) {
		d, err := sqlitelock.Open(ctx, path, opts...)
		if err != nil {
			return nil, explainSQLite("sqlite:"+path, err)
		}
		return d, nil
	}
	return location{
		url: "sqlite:" + path, empty: errors.Is(err, fs.ErrNotExist),
		open: open, openMarks: func() (*sql.DB, fence.Dialect, error) { return openSQLiteMarks(path) },
	}, nil
}

// explainSQLite adds what can be done about a file that could not be opened.
func explainSQLite(url string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s: its folder does not exist; make it, or choose another file with --url", ErrConfig, url)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; choose a file that you may write with --url sqlite:PATH", withURL(url, err))
	}
	return err
}

// canonical returns the same path for all ways to reach a file, as far as the path exists.
func canonical(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil { // our folder was removed
		return "", fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file, nil
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path)), nil
	}
	return path, nil
}

func resolveMemory(rest string) (location, error) {
	if rest != "" && rest != "?failover-grace=off" {
		return location{}, fmt.Errorf("%w URL: memory: takes nothing after the colon but ?failover-grace=off", ErrConfig)
	}
	open := func(context.Context) (driver.Driver, error) { return memlock.New(), nil }
	return location{url: "memory:", empty: true, open: open, graceOff: rest != ""}, nil
}

// withURL adds the store's URL to err, unless err contains it already.
func withURL(url string, err error) error {
	_, path, _ := strings.Cut(url, ":")
	if err == nil || path != "" && strings.Contains(err.Error(), path) {
		return err
	}
	return fmt.Errorf("%s: %w", url, err)
}
