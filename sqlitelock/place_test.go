//go:build linux

package sqlitelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

func TestBadPlace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		path func(t *testing.T, dir string) string
		want error
		say  string
	}{
		{
			name: "Empty", want: driver.ErrInvalid, say: "empty",
			path: func(*testing.T, string) string { return "" },
		},
		{
			name: "NoFolder", want: fs.ErrNotExist, say: "create it first",
			path: func(_ *testing.T, dir string) string { return filepath.Join(dir, "none", "locks.db") },
		},
		{
			name: "IsFolder", want: driver.ErrInvalid, say: "is a folder",
			path: func(_ *testing.T, dir string) string { return dir },
		},
		{
			name: "InFile", want: driver.ErrInvalid, say: "is not a folder",
			path: func(t *testing.T, dir string) string {
				write(t, filepath.Join(dir, "file"), "text")
				return filepath.Join(dir, "file", "locks.db")
			},
		},
		{
			name: "NoDatabase", want: driver.ErrInvalid, say: "not an SQLite database",
			path: func(t *testing.T, dir string) string {
				return write(t, filepath.Join(dir, "locks.db"), strings.Repeat("no database at all\n", 100))
			},
		},
		{
			name: "Newer", want: driver.ErrInvalid, say: "version 99",
			path: func(t *testing.T, dir string) string {
				path := filepath.Join(dir, "locks.db")
				open(t, path)
				sql(t, path, `PRAGMA user_version = 99`)
				return path
			},
		},
		{
			name: "Device", want: driver.ErrInvalid, say: "not a regular file",
			path: func(*testing.T, string) string { return "/dev/null" },
		},
		{
			name: "HardLink", want: driver.ErrInvalid, say: "hard links",
			path: func(t *testing.T, dir string) string {
				path := newPath(t)
				open(t, path)
				must(t, os.Link(path, filepath.Join(dir, "other.db")))
				return filepath.Join(dir, "other.db")
			},
		},
		{
			name: "MountedFile", want: driver.ErrInvalid, say: "mount the folder",
			path: func(t *testing.T, dir string) string {
				path, mounted := newPath(t), write(t, filepath.Join(dir, "locks.db"), "")
				open(t, path)
				if err := syscall.Mount(path, mounted, "", syscall.MS_BIND, ""); err != nil {
					t.Skipf("can't mount: %v", err)
				}
				t.Cleanup(func() { must(t, syscall.Unmount(mounted, syscall.MNT_DETACH)) })
				return mounted
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := tt.path(t, dir)
			checkRefused(t, path, tt.want, tt.say)
		})
	}
}

// checkRefused checks that Open fails with the error, in one line that contains say.
func checkRefused(t *testing.T, path string, want error, say string) {
	t.Helper()
	d, err := Open(t.Context(), path)
	if err == nil {
		d.Close()
		t.Fatalf("Open = nil, want an error")
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Open = %q, want one line that matches %q and says %q", err, want, say)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestForeignStaysUntouched(t *testing.T) {
	path := newPath(t)
	sql(t, path, `CREATE TABLE customers (name TEXT)`)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkRefused(t, path, driver.ErrInvalid, "another program")
	after, err := os.ReadFile(path)
	if err != nil || string(before) != string(after) {
		t.Errorf("Open changed a foreign database (%v)", err)
	}
	if _, err := os.Stat(path + ".live"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open left a file beside a foreign database")
	}
}

func TestNoPermission(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Dir(dir), 0o700) })
	var err error
	asNobody(func() { _, err = Open(t.Context(), filepath.Join(dir, "locks.db")) })
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("Open in a folder that we may not write to = %v, want fs.ErrPermission", err)
	}
}

// asNobody calls fn without root's access rights to files, which a thread can give
// up for itself.
func asNobody(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		const nobody = 65534
		syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
		fn()
	}()
	<-done
}

// mount mounts a small file system, or skips the test.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := livetest.Disk(t, dir, options); err != nil {
		t.Skipf("can't mount: %v", err)
	}
	return dir
}

func TestReadOnly(t *testing.T) {
	dir := mount(t, "size=1m")
	if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, filepath.Join(dir, "locks.db"), fs.ErrPermission, "read-only")
}

// TestBecomesReadOnly has a file system that the kernel makes read-only, because its disk failed.
// While files are open for writing, nothing else does.
func TestBecomesReadOnly(t *testing.T) {
	dir := t.TempDir()
	image, disk := write(t, filepath.Join(dir, "image"), string(make([]byte, 4<<20))), filepath.Join(dir, "disk")
	must(t, os.Mkdir(disk, 0o700))
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop,errors=remount-ro", image, disk}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no file system of our own: %v: %s", err, out)
		}
	}
	t.Cleanup(func() { must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	device, err := exec.Command("findmnt", "-no", "SOURCE", disk).Output()
	must(t, err)
	path := filepath.Join(disk, "locks.db")
	d := open(t, path)
	l, waiter := acquire(t, d, requestTTL("holder", 6*time.Second)), make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), request("waiter"))
		waiter <- err
	}()
	awaitQueued(t, d, "waiter")
	fail := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(device))), "trigger_fs_error")
	if err := os.WriteFile(fail, []byte("broken"), 0); err != nil {
		t.Skip(err)
	}
	_, err = Open(t.Context(), path)
	if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open = %v, want an error that says read-only, and that a retry does not help", err)
	}
	renewal := d.Renew(t.Context(), []driver.Lease{l})[0]
	for who, err := range map[string]error{"Renew": renewal.Err, "Acquire of the waiter": <-waiter} {
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s = %v, want an error that leaves the outcome open", who, err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := mount(t, "size=1m")
	d := open(t, filepath.Join(dir, "locks.db"))
	l := acquire(t, d, request("holder"))
	filler := filepath.Join(dir, "filler")
	os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		req := request("next")
		req.Name = strings.Repeat("long name ", 50) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		_, err = try(d, req)
	}
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no space left") ||
		strings.Contains(err.Error(), "\n") {
		t.Fatalf("Acquire on a full disk = %v, want ErrUnavailable in a line that says so", err)
	}
	releaseErr := l.Release(context.Background())
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := try(d, request("next")); err != nil {
		t.Errorf("Acquire after a release on a full disk (%v) = %v, want the lock to be free", releaseErr, err)
	}
}

// TestWaiterOnFullDisk checks that a waiter keeps its place if its turn comes on a full disk.
func TestWaiterOnFullDisk(t *testing.T) {
	t.Parallel()
	dir := mount(t, "size=1m")
	d := open(t, filepath.Join(dir, "locks.db"))
	l := acquire(t, d, request("holder"))
	outages, req := make(chan error, 1), request("waiter")
	req.OnWait = func(err error) {
		if err != nil {
			select {
			case outages <- err:
			default:
			}
		}
	}
	w := livetest.Waiting(t, d, req)
	filler := filepath.Join(dir, "filler")
	os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	l.Release(t.Context())
	select {
	case err := <-outages:
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("the waiter was told %v, want ErrUnavailable that says why", err)
		}
	case <-w.Done():
	}
	w.Running(t, "while the disk was full")
	must(t, os.Remove(filler))
	w.Get(t)
}

// TestEndOfOutage ends a wait after an outage that is over, and that of a driver that is closed
// during one. Neither is taken for an outage.
func TestEndOfOutage(t *testing.T) {
	t.Parallel()
	d := open(t, newPath(t))
	acquire(t, d, request("holder"))
	for _, tt := range []struct {
		cause error
		held  bool // the store has said so before the wait ends
	}{{context.Canceled, true}, {driver.ErrClosed, false}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		a := &attempt{d: d, req: request("waiter"), hint: make(chan struct{}, 1), outage: driver.ErrUnavailable}
		if a.req.OnWait = func(error) { cancel(tt.cause) }; !tt.held {
			cancel(tt.cause)
		}
		if _, err := a.wait(ctx); !errors.Is(err, tt.cause) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a wait that ends with %v = %v, want that alone", tt.cause, err)
		}
		d.attempts.RLock()
		a.withdraw(nil)
	}
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", ".live"} {
		t.Run("file"+suffix, func(t *testing.T) {
			path := newPath(t)
			d := open(t, path)
			l := acquire(t, d, requestTTL("holder", 6*time.Second))
			if err := os.Rename(path+suffix, path+suffix+".old"); err != nil {
				t.Fatal(err)
			}
			_, err := try(d, request("other"))
			if err == nil || !strings.Contains(err.Error(), "replaced or deleted") {
				t.Errorf("Acquire after the file was moved away = %v, want an error that says so", err)
			}
			if err := d.Renew(context.Background(), []driver.Lease{l})[0].Err; err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew after the file was moved away = %v, want an error that leaves the outcome open", err)
			}
			if _, err := d.Status(t.Context(), "a name"); err == nil || !strings.Contains(err.Error(), "replaced or deleted") {
				t.Errorf("Status after the file was moved away = %v, want an error that says so", err)
			}
			if suffix == "" {
				return // a new driver finds a new database
			}
			next := open(t, path)
			_, err = try(next, request("other"))
			if err == nil || !strings.Contains(err.Error(), "rely on") {
				t.Errorf("Acquire with a new sidecar while a lease relies on the old one = %v, want an error", err)
			}
			livetest.Await(t, "adoption of the new sidecar", func() error {
				_, err := try(next, request("other"))
				return err
			})
		})
	}
}

func TestSymlink(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	link := filepath.Join(t.TempDir(), "link.db")
	d := open(t, path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	acquire(t, d, request("holder"))
	if _, err := try(open(t, link), request("other")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire through a symbolic link = %v, want ErrHeld", err)
	}
}

// TestTemporaryName has the second name that makeFile leaves if its process is killed.
func TestTemporaryName(t *testing.T) {
	path := newPath(t)
	open(t, path)
	must(t, os.Link(path, filepath.Join(filepath.Dir(path), ".snib-1")))
	acquire(t, open(t, path), request("holder"))
}

func TestNetwork(t *testing.T) {
	names := map[uint32]string{0x6969: "NFS", 0xff534d42: "SMB", 0x01021997: "9P", 0x65735546: "FUSE", 0xef53: ""}
	for magic, want := range names {
		if got := networkFileSystem(magic); got != want {
			t.Errorf("network(%#x) = %q, want %q", magic, got, want)
		}
	}
}

func TestParseTimeShift(t *testing.T) {
	tests := []struct {
		text string
		want int64
		bad  bool
	}{
		{text: "monotonic           0         0\nboottime            0         0\n"},
		{text: "monotonic 5 0\nboottime -7 250000000\n", want: -7*1e9 + 25e7},
		{text: "monotonic 5 0\n", bad: true},
	}
	for _, tt := range tests {
		got, err := parseTimeShift(tt.text)
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("parseTimeShift(%q) = %d, %v; want %d, error %v", tt.text, got, err, tt.want, tt.bad)
		}
	}
}

// TestCopy checks that a copy by VACUUM INTO, which has no log, is a separate database.
func TestCopy(t *testing.T) {
	t.Parallel()
	path, dup := newPath(t), newPath(t)
	l := acquire(t, open(t, path), request("holder"))
	sql(t, path, `VACUUM INTO '`+dup+`'`)
	one, other := open(t, dup), open(t, dup)
	// The leases of the original rely on a sidecar that the copy lacks.
	livetest.Await(t, "lease in the copy", func() error {
		sql(t, dup, `DELETE FROM leases`)
		next, err := try(one, request("next"))
		if err == nil && next.Grant().Token <= l.Grant().Token {
			t.Errorf("token of the copy = %d after %d", next.Grant().Token, l.Grant().Token)
		}
		return err
	})
	if _, err := try(other, request("other")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a lock that is held in the copy = %v, want ErrHeld", err)
	}
	if got := modes(t, dup); got[1]&0o066 != 0 || got[2]&0o066 != 0 || got[3]&0o066 != 0 {
		t.Errorf("modes of the copy = %o", got)
	}
}

// umask sets the umask of this process for a test.
func umask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

// modes returns the permissions of the files of a database.
func modes(t *testing.T, path string) (all [len(suffixes)]fs.FileMode) {
	t.Helper()
	for i, suffix := range suffixes {
		fi, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = fi.Mode().Perm()
	}
	return all
}

func TestMode(t *testing.T) {
	const group = 4242
	tests := []struct {
		name  string
		opts  []Option
		umask int
		// Of an earlier database without the files beside it; 0 if there was none.
		old  fs.FileMode
		want [len(suffixes)]fs.FileMode
	}{
		{name: "Default", want: [...]fs.FileMode{0o600, 0o600, 0o600, 0o600}},
		{name: "Group", opts: []Option{Mode(0o660)}, umask: 0o077, want: [...]fs.FileMode{0o660, 0o660, 0o660, 0o660}},
		{name: "All", opts: []Option{Mode(0o666)}, umask: 0o077, want: [...]fs.FileMode{0o666, 0o666, 0o666, 0o666}},
		{name: "OldGroup", old: 0o660, umask: 0o077, want: [...]fs.FileMode{0o660, 0o660, 0o660, 0o660}},
		{name: "OldReadable", opts: []Option{Mode(0o666)}, old: 0o644, want: [...]fs.FileMode{0o644, 0o600, 0o600, 0o600}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := newPath(t)
			root := os.Geteuid() == 0
			if root {
				if err := os.Chown(filepath.Dir(path), -1, group); err != nil {
					t.Fatal(err)
				}
			}
			if tt.old != 0 {
				d := open(t, path, Mode(0o600))
				release(t, acquire(t, d, request("earlier")))
				d.Close()
				sql(t, path, `PRAGMA wal_checkpoint(TRUNCATE)`)
				for _, suffix := range suffixes[1:] {
					os.Remove(path + suffix)
				}
				if err := os.Chmod(path, tt.old); err != nil {
					t.Fatal(err)
				}
			}
			umask(t, tt.umask)
			d := open(t, path, tt.opts...)
			release(t, acquire(t, d, request("now")))
			if got := modes(t, path); got != tt.want {
				t.Errorf("modes = %o, want %o", got, tt.want)
			}
			for _, suffix := range suffixes {
				fi, err := os.Stat(path + suffix)
				if err == nil && root && tt.old == 0 && fi.Mode()&0o060 == 0o060 && groupOf(fi) != group {
					t.Errorf("file%s belongs to the group %d, want that of the folder", suffix, groupOf(fi))
				}
			}
			if left, _ := filepath.Glob(filepath.Dir(path) + "/.snib-*"); len(left) > 0 {
				t.Errorf("%q are left", left)
			}
		})
	}
	for _, mode := range []fs.FileMode{0, 0o400, 0o644, 0o640, 0o620, 0o060, 0o700, 0o1600, fs.ModeSetuid | 0o600} {
		if d, err := Open(t.Context(), newPath(t), Mode(mode)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Open with mode %#o = %v, %v, want ErrInvalid", mode, d, err)
		}
	}
}

// TestReaderBlocksNobody checks that another user can't open the files, and so can
// neither lock their bytes nor read ids.
func TestReaderBlocksNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	umask(t, 0)
	path := newPath(t)
	d := open(t, path)
	acquire(t, d, request("holder"))
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil && fi.Mode()&0o005 != 0o005 {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	asNobody(func() {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the folder is closed, so nothing is shown: %v", err)
		}
		for _, suffix := range suffixes {
			f, err := os.Open(path + suffix)
			if err == nil {
				err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: writerByte, Len: 1})
				f.Close()
			}
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("to open file%s and to lock a byte of it = %v, want ErrPermission", suffix, err)
			}
		}
		if _, err := Open(t.Context(), path); !errors.Is(err, fs.ErrPermission) ||
			!strings.Contains(err.Error(), "belongs to uid 0 ") {
			t.Errorf("Open by another user = %v, want ErrPermission that tells whose file it is", err)
		}
	})
}

// TestPlantedLink checks that Open does not follow a link in place of a file beside
// the database.
func TestPlantedLink(t *testing.T) {
	t.Parallel()
	for _, suffix := range suffixes[1:] {
		for _, exists := range []bool{true, false} {
			path := newPath(t)
			target := filepath.Join(t.TempDir(), "target")
			if exists {
				write(t, target, "text")
			}
			if err := os.Symlink(target, path+suffix); err != nil {
				t.Fatal(err)
			}
			checkRefused(t, path, driver.ErrInvalid, "not a regular file")
			if text, err := os.ReadFile(target); exists && string(text) != "text" || !exists && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Open with a link at file%s has changed its target to %q, %v", suffix, text, err)
			}
		}
	}
}

// TestDeletedInUse checks that old and new drivers report a file that was deleted while in use.
func TestDeletedInUse(t *testing.T) {
	t.Parallel()
	for _, suffix := range suffixes[:3] {
		t.Run("file"+suffix, func(t *testing.T) {
			path := newPath(t)
			d := open(t, path)
			acquire(t, d, request("holder"))
			if err := os.Remove(path + suffix); err != nil {
				t.Fatal(err)
			}
			next, err := Open(t.Context(), path)
			if err == nil {
				defer next.Close()
				_, err = try(next, request("other"))
			}
			if err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "deleted") ||
				strings.Contains(err.Error(), "boot") {
				t.Errorf("by a new driver, Open or Acquire = %v, want words about a deleted file", err)
			}
			if _, err := try(d, request("other")); err == nil || !strings.Contains(err.Error(), "deleted") {
				t.Errorf("by the old driver, Acquire = %v, want words about a deleted file", err)
			}
		})
	}
}

// TestLogReplaced checks that an empty log in place of the one in use is detected.
func TestLogReplaced(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := open(t, path)
	acquire(t, d, request("holder"))
	if err := os.Remove(path + walSuffix); err != nil {
		t.Fatal(err)
	}
	write(t, path+walSuffix, "")
	next, err := Open(t.Context(), path)
	if err == nil {
		defer next.Close()
		_, err = try(next, request("other"))
	}
	if err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "deleted or replaced") {
		t.Errorf("Open or Acquire = %v, want words about a replaced file", err)
	}
}

// The first process that opens the database reads the whole log. So the log must stay short, also
// if only processes that come and go use it.
func TestShortLog(t *testing.T) {
	path := newPath(t)
	for range 100 {
		d := open(t, path)
		release(t, acquire(t, d, request("a")))
		if err := d.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
	if log, err := os.Stat(path + walSuffix); err != nil || log.Size() > 200*4120 {
		t.Errorf("the log is %+v, %v; want that it has about %d pages", log, err, mostLogged)
	}
}

func TestNoFiles(t *testing.T) {
	checkRefused(t, "/proc/locks.db", driver.ErrInvalid, "no file can be created")
}
