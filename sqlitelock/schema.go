package sqlitelock

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sniblock/snib/driver"
)

// These numbers identify a file as a database of this package: see
// docs/backends/sqlitelock.md, "Keys".
const (
	applicationID = 0x736e6962 // "snib"
	version       = 3
)

// checkPlace checks that the file can be used. Its errors say what would be right.
func checkPlace(path string) error {
	dir := filepath.Dir(path)
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no such folder: %s; create it first: %w", dir, fs.ErrNotExist)
	case err != nil && !isMissing(err):
		return err
	case err != nil || !fi.IsDir():
		return driver.Invalidf("file: %s is not a folder", dir)
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	for _, suffix := range suffixes {
		if err := checkFile(path + suffix); err != nil {
			return err
		}
	}
	return nil
}

// prepare connects to the database, creates it if necessary, and checks that it
// belongs to this package.
func (d *Driver) prepare() (*conn, error) {
	if err := d.checkDeleted(); err != nil {
		return nil, err
	}
	// The file of another program must be recognised before anything is created beside it.
	if size(d.path) > 0 {
		if err := d.completeFiles(); err != nil {
			return nil, err
		}
		db, ready, err := d.check()
		if err != nil || ready {
			return db, err
		}
		if err := db.close(); err != nil {
			return nil, err
		}
	}
	return d.create()
}

// size returns the size of a file, 0 if it does not exist.
func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// completeFiles creates SQLite's files beside a database of this package that lacks
// them, for example because it was copied: SQLite would let everybody read them. If
// the log exists, SQLite has created both.
func (d *Driver) completeFiles() error {
	if _, err := os.Lstat(d.path + walSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	header := make([]byte, 72)
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.ReadFull(f, header); err != nil || binary.BigEndian.Uint32(header[68:]) != applicationID {
		return nil // another program's file, which check reports
	}
	return firstError(
		func() error { return d.makeFile(walSuffix) },
		func() error { return d.makeFile(shmSuffix) })
}

// create creates the tables unless another process did so in the meantime. The
// writer lock keeps the processes apart.
func (d *Driver) create() (_ *conn, err error) {
	if err := d.makeFile(liveSuffix); err != nil {
		return nil, err
	}
	side, err := openSidecar(d.path + liveSuffix)
	if err != nil {
		return nil, err
	}
	defer side.close() //nolint:errcheck // only locks stand in it
	locked := make(chan error, 1)
	go func() { locked <- side.lockWriter() }()
	select {
	case err := <-locked:
		if err != nil {
			return nil, err
		}
	case <-d.life.Done(): // who has the lock may be stopped
		return nil, context.Cause(d.life)
	}
	if err := d.createEmpty(); err != nil {
		return nil, err
	}
	db, ready, err := d.check()
	if err != nil || ready {
		return db, err
	}
	if err := d.retry(func() error { return setUp(db) }); err != nil {
		return nil, errors.Join(d.explain(err), db.close())
	}
	return db, nil
}

// createEmpty creates a database without tables unless there is one. SQLite gives the log other
// permissions than the database has, and deletes the log of a database without pages. So
// createEmpty creates the log itself and writes the first page last.
func (d *Driver) createEmpty() error {
	if size(d.path) > 0 {
		return nil
	}
	for _, suffix := range []string{walSuffix, shmSuffix} { // of a database that was deleted
		if err := os.Remove(d.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	page, err := firstPage(filepath.Dir(d.path))
	if err != nil {
		return d.explain(err)
	}
	for _, suffix := range suffixes {
		if err := d.makeFile(suffix); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(d.path, os.O_WRONLY|noFollow, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(page)
	return errors.Join(err, f.Close())
}

// firstPage returns the contents of a database without tables whose journal is a
// write-ahead log.
func firstPage(dir string) (_ []byte, err error) {
	temp, err := os.MkdirTemp(dir, tempPattern)
	if err != nil {
		return nil, cantCreate(filepath.Join(dir, "locks.db"), err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // nothing in it is of use to anybody
	path := filepath.Join(temp, "db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	db, err := connect(path, func() bool { return true })
	if err != nil {
		return nil, err
	}
	if err := errors.Join(db.exec(useLog), db.close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// setUp makes an empty database one of ours, wholly or not at all.
func setUp(db *conn) (err error) {
	if err := db.exec(useLog); err != nil {
		return err
	}
	if err := db.exec(beginWrite); err != nil {
		return err
	}
	statements := append(createTables[:], insertMeta, fmt.Sprintf(`PRAGMA application_id = %d`, applicationID), fmt.Sprintf(`PRAGMA user_version = %d`, version))
	for _, sql := range statements {
		if err := db.exec(sql); err != nil {
			return errors.Join(err, db.exec(rollback))
		}
	}
	return db.exec(commit)
}

// check opens the database and reports whether it is ready for use. One that is empty is not;
// one that belongs to something else is an error.
func (d *Driver) check() (_ *conn, ready bool, err error) {
	db, err := connect(d.path, d.closed)
	if err != nil {
		return nil, false, d.explain(err)
	}
	var app, ver, tables int64
	err = d.retry(func() error { app, ver, tables, err = identity(db); return err })
	switch {
	case err != nil:
		err = d.explain(err)
	case app == applicationID && ver == version:
		return db, true, nil
	case app == 0 && ver == 0 && tables == 0:
		return db, false, nil
	case app != applicationID:
		err = driver.Invalidf("file: %s is an SQLite database of another program; name another file, or none", d.path)
	default:
		err = driver.Invalidf("file: %s has version %d of the tables, and this program supports version %d; use the program that made the file, or name another file", d.path, ver, version)
	}
	return nil, false, errors.Join(err, db.close())
}

// identity reads what identifies the program that owns the database. It reads in one
// transaction, because another process may be creating the database.
func identity(db *conn) (app, ver, tables int64, err error) {
	if err := db.exec(beginRead); err != nil {
		return 0, 0, 0, err
	}
	err = firstError(
		func() error { return readInt(db, countTables, &tables) },
		func() error { return readInt(db, applicationOf, &app) },
		func() error { return readInt(db, versionOf, &ver) })
	return app, ver, tables, cmp.Or(err, db.exec(rollback))
}

// retry calls fn until the database is not busy, or the driver is closed. Where it could wait for
// itself (a change of the journal mode), SQLite does not call the busy handler.
func (d *Driver) retry(fn func() error) error {
	for count := 0; ; count++ {
		if err := fn(); resultCode(err) != codeBusy || d.closed() {
			return err
		}
		backOff(count)
	}
}

// explain adds to an error of SQLite what it means here and what to do about it.
func (d *Driver) explain(err error) error {
	switch resultCode(err) {
	case codeNotADB:
		return driver.Invalidf("file: %s is not an SQLite database; name another file", d.path)
	case codeCorrupt:
		return driver.Invalidf("file: %s is damaged (%w); move it away while no process uses it", d.path, err)
	case codeReadOnly:
		return fmt.Errorf("%s can't be written to: %w (%w)", d.path, fs.ErrPermission, err)
	case codeFull:
		return d.diskFullError(err)
	case codeIO:
		// Not every build of SQLite distinguishes the two errors.
		if diskFull(filepath.Dir(d.path)) {
			return d.diskFullError(err)
		}
		return fmt.Errorf("%s: %w; if a file of the database was deleted or replaced, stop all processes that use it, then start them again",
			d.path, err)
	case codeCantOpen:
		return fmt.Errorf("open %s: %w", d.path, err)
	}
	return err
}

// diskFullError returns the error for a full disk. Space may become free, so the
// error is an ErrUnavailable.
func (d *Driver) diskFullError(err error) error {
	return fmt.Errorf("%w: %s: %w; make room (%w)", driver.ErrUnavailable, d.path, syscall.ENOSPC, err)
}

// firstError calls the functions one after the other until one fails, and returns its error.
func firstError(fns ...func() error) error {
	for _, fn := range fns {
		if err := fn(); err != nil {
			return err
		}
	}
	return nil
}

// readInt reads a single number.
func readInt(db *conn, sql string, to *int64) error {
	return db.query(sql, func(r row) { *to = r.int(0) })
}
