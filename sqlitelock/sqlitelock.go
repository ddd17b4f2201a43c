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

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

// A Driver takes leases in one SQLite file. It is safe for concurrent use.
type Driver struct {
	path    string
	files   [len(suffixes)]os.FileInfo // of all files, which a connection and side keep open
	side    *sidecar
	live    int64 // the sidecar's inode
	boot    string
	now     func() int64 // the boot clock
	durable bool
	mode    fs.FileMode // of a database that is created

	life    context.Context // done when Close is called
	end     context.CancelFunc
	ops     chan *op      // to the writer
	written chan struct{} // closed when the writer is gone

	viewing sync.Mutex // guards reader, and its use
	reader  conn       // nil until needed

	closing sync.Once
	err     error // what Close answers
}

// An Option changes how [Open] opens a database.
type Option func(*Driver) error

// Fencing sets the strength of the fencing tokens. The default is [driver.FencingDurable]: a grant is on the disk
// before it is answered. [driver.FencingClock] saves that time; then a power cut may take back the last grants, and
// tokens are ordered across it if the clock is right. Any other strength is a [driver.ErrInvalid].
func Fencing(strength driver.Fencing) Option {
	return func(d *Driver) error {
		if strength != driver.FencingDurable && strength != driver.FencingClock {
			return fmt.Errorf("%w fencing %v: SQLite locks have durable or clock", driver.ErrInvalid, strength)
		}
		d.durable = strength == driver.FencingDurable
		return nil
	}
}

// Open opens the database at path, which it creates if need be; its folder must be there. The file must be one of ours,
// on a disk of this host.
//
// An error matches [fs.ErrNotExist] if there is no such folder, [fs.ErrPermission] if we may not read and write there,
// and [driver.ErrInvalid] if the place can't be used: the database of another program or of a newer version, a network
// file system, or a system other than Linux.
func Open(path string, opts ...Option) (*Driver, error) {
	d := &Driver{durable: true, mode: 0o600, ops: make(chan *op), written: make(chan struct{})}
	for _, opt := range opts {
		if err := opt(d); err != nil {
			return nil, err
		}
	}
	d.life, d.end = context.WithCancel(context.Background())
	if err := d.open(path); err != nil {
		d.end()
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
	go d.write(db)
	return nil
}

// start readies what goes with an open database.
func (d *Driver) start(db conn) (err error) {
	if _, err := db.exec(`PRAGMA synchronous = NORMAL`); err != nil { // the writer raises it for what must last
		return d.explain(err)
	}
	if err := d.makeFile(liveSuffix); err != nil {
		return err
	}
	if d.side, err = openSidecar(d.path + liveSuffix); err != nil {
		return err
	}
	d.live = inode(d.side.file)
	for i, suffix := range suffixes {
		if d.files[i], err = os.Lstat(d.path + suffix); err != nil {
			return errors.Join(err, d.side.close())
		}
	}
	d.files[len(suffixes)-1] = d.side.file // this one for certain
	return nil
}

// resolve follows symbolic links: all who use one database must find the same file beside it.
func resolve(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("%w file: the path is empty", driver.ErrInvalid)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(abs)
	if !missing(err) {
		return target, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if missing(err) {
		return abs, nil // checkPlace says what is wrong
	}
	return filepath.Join(dir, filepath.Base(abs)), err
}

// missing reports that a file is not there, or can't be, in what is no folder.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Promises is the Info of a driver without options. It opens no file.
func Promises() driver.Info { return (&Driver{durable: true}).Info() }

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	info := driver.Info{
		Backend:  "sqlite",
		Tenure:   driver.TenureLease,
		Fencing:  driver.FencingDurable,
		Fairness: driver.FairAlways,
		Shared:   true,
		Slots:    true,
		MinTTL:   10 * time.Millisecond, // below it a busy disk alone ends leases
		Assumptions: []string{
			"all processes run on one host, under one kernel, and use the same file",
			"the file and those beside it are not deleted, replaced or written to by other programs while in use",
			"the disk keeps what it has acknowledged (fsync is honest)",
		},
		Faults: driver.Faults{
			Pause:     "the lock goes on at the end of the lease; what the holder then writes late, the resource must refuse by token",
			Crash:     "a dead process is noticed at once; all leases end when the host restarts",
			Failover:  "there is none: the file is on one host; after a power cut tokens go on from what is on the disk",
			Partition: "there is none: network file systems are refused",
			ClockJump: "no effect: leases count by the boot clock",
		},
	}
	if !d.durable {
		info.Fencing = driver.FencingClock
		info.Assumptions[2] = "the wall clock does not go back across a power cut, which may take back the last grants"
	}
	return info
}

// Close implements [driver.Driver]. It ends the leases that were not released, save detached ones: the driver can keep
// them no longer.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.end()
		stuck := time.NewTimer(withdrawal) // another process may be stopped in the middle of its turn
		defer stuck.Stop()
		select {
		case <-d.written:
		case <-stuck.C:
		}
		d.err = d.side.close()
		d.viewing.Lock()
		defer d.viewing.Unlock()
		if d.reader != nil {
			d.err = errors.Join(d.err, d.reader.close())
		}
	})
	return d.err
}
