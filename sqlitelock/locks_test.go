//go:build linux || darwin || windows

package sqlitelock

import (
	"os"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// openTwo opens a new sidecar file twice, as two drivers of one process do.
func openTwo(t *testing.T) (a, b *byteLocks) {
	t.Helper()
	path := newPath(t) + liveSuffix
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	both := [2]*byteLocks{}
	for i := range both {
		var err error
		if both[i], err = openByteLocks(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { both[i].close() })
	}
	return both[0], both[1]
}

// wantLocked checks what b knows of a byte.
func wantLocked(t *testing.T, when string, b *byteLocks, at int64, want bool) {
	t.Helper()
	if got, err := b.locked(at); got != want || err != nil {
		t.Errorf("%s: locked = %v, %v, want %v", when, got, err, want)
	}
	if got, err := b.anyLocked(); got != want || err != nil {
		t.Errorf("%s: anyLocked = %v, %v, want %v", when, got, err, want)
	}
}

// TestByteLocks checks that one driver sees what another one keeps locked, and nothing else.
func TestByteLocks(t *testing.T) {
	a, b := openTwo(t)
	const at = 3*blockSize + 7
	wantLocked(t, "at first", b, at, false)
	if err := a.lock(at); err != nil {
		t.Fatal(err)
	}
	wantLocked(t, "locked", b, at, true)
	for _, other := range []int64{at - 1, at + 1} {
		if got, err := b.locked(other); got || err != nil {
			t.Errorf("locked of byte %d = %v, %v, want false", other, got, err)
		}
	}
	a.unlock(at)
	wantLocked(t, "unlocked", b, at, false)
	if err := a.lock(at + 1); err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	wantLocked(t, "closed", b, at+1, false)
}

// TestWaitForByte checks that a wait ends when the byte is unlocked and not before, and that
// meanwhile the one who waits can use other bytes.
func TestWaitForByte(t *testing.T) {
	a, b := openTwo(t)
	const at = blockSize + 1
	if err := b.wait(at); err != nil {
		t.Fatalf("wait for a free byte = %v", err)
	}
	if err := a.lock(at); err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() { woken <- b.wait(at) }()
	select {
	case err := <-woken:
		t.Fatalf("wait for a locked byte returned at once: %v", err)
	case <-time.After(50 * time.Millisecond): // there is no event for "waits"
	}
	if err := b.lock(at + 1); err != nil {
		t.Fatal(err)
	}
	b.unlock(at + 1)
	if got, err := b.locked(at); !got || err != nil {
		t.Errorf("locked while another goroutine waits = %v, %v, want true", got, err)
	}
	a.unlock(at)
	select {
	case err := <-woken:
		if err != nil {
			t.Errorf("wait = %v", err)
		}
	case <-time.After(livetest.Patience):
		t.Fatal("wait did not return when the byte was unlocked")
	}
	wantLocked(t, "after the wait", a, at, false)
}

// TestWriterLock checks that one driver waits until another one has written.
func TestWriterLock(t *testing.T) {
	a, b := openTwo(t)
	if err := a.lockWriter(); err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, 1)
	go func() { locked <- b.lockWriter() }()
	select {
	case err := <-locked:
		t.Fatalf("both drivers write: %v", err)
	case <-time.After(50 * time.Millisecond): // there is no event for "waits"
	}
	if err := b.lock(blockSize); err != nil {
		t.Fatal(err)
	}
	a.unlockWriter()
	select {
	case err := <-locked:
		if err != nil {
			t.Errorf("lockWriter = %v", err)
		}
	case <-time.After(livetest.Patience):
		t.Fatal("lockWriter did not return when the writer was unlocked")
	}
	b.unlockWriter()
}

// TestLockNewFile checks that a byte that was locked through a new file is unlocked by
// unlockFile, and stays locked if the driver is closed.
func TestLockNewFile(t *testing.T) {
	a, b := openTwo(t)
	const at = blockSize + 1
	f, err := a.lockNewFile(at)
	if !canInherit {
		if err == nil {
			t.Error("lockNewFile succeeded although nothing can inherit the file")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	wantLocked(t, "after close", b, at, true)
	b.unlockFile(f, at)
	wantLocked(t, "after unlockFile", b, at, false)
}

// TestLstat checks that lstat identifies a file at once, and not only when it is compared: then a
// file that was replaced in between would be compared with itself.
func TestLstat(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSameFile(before, path); err != nil {
		t.Error(err)
	}
	before, err = lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkSameFile(before, path); err == nil {
		t.Error("a file that was replaced is taken for the original")
	}
}
