package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sniblock/snib/driver"
)

var _ driver.Driver = (*Driver)(nil)

// A Driver takes leases in one SQLite file. It is safe for concurrent use.
type Driver struct {
	path  string
	files [len(suffixes)]os.FileInfo // all files; a connection and side keep them open
	side  *sidecar
	bell  bell
	live  int64 // the sidecar's inode
	boot  string
	now   func() int64 // the boot clock, in nanoseconds
	wall  func() int64 // the wall clock, in nanoseconds since 1970
	mode  fs.FileMode  // of a database that Open creates

	leases sync.Map // from leaseKey to the byte that we keep locked for a lease, an int64

	life       context.Context // done when Close is called
	cancel     context.CancelFunc
	attempts   sync.RWMutex  // each attempt has a read lock until nothing is left of it but its lease
	ops        chan *op      // to the writer
	lastOp     chan struct{} // closed when there are no more attempts after Close
	writerDone chan struct{} // closed when the writer has ended

	readerFree chan struct{} // has a value while nobody uses reader
	reader     *conn         // nil until needed

	closing sync.Once
	err     error // what Close returns
}

// An Option changes how [Open] opens a database.
type Option struct{ set func(*Driver) error }

func (o Option) apply(d *Driver) error {
	if o.set == nil {
		return driver.Invalidf("option: the zero Option")
	}
	return o.set(d)
}

// openTimeout bounds Open.
const openTimeout = 10 * time.Second

// Open opens the database at path and creates it if necessary; its folder must exist. The file
// must be a database of this package on a disk of this host. The context bounds only the call:
// Open waits while other processes keep the database busy, for at most 10 seconds. The error then
// matches [driver.ErrUnavailable]: another try may succeed.
//
// The error matches [fs.ErrNotExist] if there is no such folder, [fs.ErrPermission] if
// the process may not read and write there, and [driver.ErrInvalid] if the path can't be
// used: it is the database of another program or of a newer version, it has hard links, it is on
// a network file system or a mount of its own, or the system is not Linux, macOS or Windows.
func Open(ctx context.Context, path string, opts ...Option) (*Driver, error) {
	d := &Driver{mode: 0o600, wall: func() int64 { return time.Now().UnixNano() }, ops: make(chan *op),
		lastOp: make(chan struct{}), writerDone: make(chan struct{}), readerFree: make(chan struct{}, 1)}
	d.readerFree <- struct{}{}
	for _, opt := range opts {
		if err := opt.apply(d); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errNoAnswer)
	defer cancel()
	d.life, d.cancel = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, d.cancel) // ends the waits for a database that is busy
	err := d.open(path)
	if !stop() {
		if err == nil {
			_ = d.Close() // it has no leases yet
		}
		return nil, fmt.Errorf("%w: other processes keep %s busy: %w", driver.ErrUnavailable, path, context.Cause(ctx))
	}
	if err != nil {
		d.cancel()
		return nil, err
	}
	return d, nil
}

func (d *Driver) open(path string) (err error) {
	if d.path, err = resolve(path); err != nil {
		return err
	}
	if err := checkPlace(d.path); err != nil {
		return err
	}
	if d.boot, err = bootID(); err != nil {
		return err
	}
	if d.now, err = bootClock(); err != nil {
		return err
	}
	db, err := d.prepare()
	if err != nil {
		return err
	}
	if err := d.start(db); err != nil {
		return errors.Join(err, db.close())
	}
	go d.runWriter(db)
	return nil
}

// start opens the sidecar of an open database and records the identities of all files.
func (d *Driver) start(db *conn) (err error) {
	// The first transaction is durable, as it grants a lease; the writer lowers it for others.
	if err := db.exec(syncFull); err != nil {
		return d.explain(err)
	}
	if err := d.makeFile(liveSuffix); err != nil {
		return err
	}
	if d.side, err = openSidecar(d.path + liveSuffix); err != nil {
		return err
	}
	d.live, d.bell.path = inode(d.side.info), d.side.path
	for i, suffix := range suffixes {
		if d.files[i], err = lstat(d.path + suffix); err != nil {
			return errors.Join(err, d.side.close())
		}
	}
	d.files[len(suffixes)-1] = d.side.info // the file that is open, in any case
	return nil
}

// resolve follows symbolic links: all users of one database must find the same files beside it.
func resolve(path string) (string, error) {
	if path == "" {
		return "", driver.Invalidf("file: the path is empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(abs)
	if !isMissing(err) {
		return target, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if isMissing(err) {
		return abs, nil // checkPlace reports what is wrong
	}
	return filepath.Join(dir, filepath.Base(abs)), err
}

// isMissing reports whether err says that a file does not exist, or that its parent
// is not a folder.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Info implements [driver.Driver]. It is the same for the zero Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend: "sqlite",
		Tenure:  driver.TenureLease,
		Fencing: driver.FencingDurable,
		Fair:    true,
		Shared:  true,
		Slots:   true,
		MinTTL:  10 * time.Millisecond, // with a shorter TTL, a busy disk alone would end leases
		Assumptions: []string{
			"all processes run on one host, under one kernel, and use the same file",
			"the file and those beside it are not deleted, replaced or written to by other programs while in use",
			"the disk keeps what it has acknowledged (fsync is honest), " +
				"and the wall clock is right across a restart of the host: detached leases end by it",
		},
	}
}

// Close implements [driver.Driver]. It ends the leases that were not released, except
// detached ones: a closed driver can't keep them.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.cancel()
		idle := make(chan error, 1)
		go func() {
			d.attempts.Lock() // the writer still withdraws those that Close has ended
			close(d.lastOp)
			<-d.writerDone
			<-d.readerFree
			if d.reader == nil {
				idle <- nil
			} else {
				idle <- d.reader.close()
			}
		}()
		stuck := time.NewTimer(cleanupTimeout) // another process may be stopped while it writes
		defer stuck.Stop()
		select {
		case d.err = <-idle:
		case <-stuck.C:
		}
		d.err = errors.Join(d.err, d.bell.close(), d.side.close())
	})
	return d.err
}
