package livetest

import (
	_ "embed" // for the source of the shim
	"encoding/binary"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/shim.c
var shimSource string

// A Shim stands between a server and the system: a test can step the server's wall clock, have its
// fsync fail, fill the disk, and cut the power. The monotonic clock of the server does not change.
// The shim is a preloaded library; libfaketime does not work with Redis.
type Shim struct {
	t          testing.TB
	lib        string
	file       *os.File // the settings that the library reads
	synced     string   // file in which the library notes what it has synced
	offset     time.Duration
	fsyncFails bool
	isFull     bool // the disk
}

// NewShim returns a shim for servers of any account. It skips t if there is no C compiler, or
// fails it if SNIB_REQUIRE names the server.
func NewShim(t testing.TB, server string) *Shim {
	t.Helper()
	gcc := Binary(t, server, "gcc")
	dir := Account("nobody").Home(t)
	source, lib := filepath.Join(dir, "shim.c"), filepath.Join(dir, "shim.so")
	err := os.Chmod(dir, 0o755) //nolint:gosec // the server's account reads it
	if err == nil {
		err = os.WriteFile(source, []byte(shimSource), 0o600)
	}
	Must(t, err, "make a shim")
	if out, err := exec.Command(gcc, "-O2", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("compile testdata/shim.c: %v\n%s", err, out)
	}
	file, err := os.OpenFile(filepath.Join(dir, "orders"), os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // likewise
	Must(t, err, "make a shim")
	t.Cleanup(func() { file.Close() })
	s := &Shim{t: t, lib: lib, file: file, synced: filepath.Join(dir, "synced")}
	err = os.WriteFile(s.synced, nil, 0o600)
	if err == nil {
		err = os.Chmod(s.synced, 0o666) //nolint:gosec // the server's account writes it
	}
	Must(t, err, "make a shim")
	s.writeOrders()
	return s
}

// Env returns the environment for a server that uses the shim.
func (s *Shim) Env() []string {
	return []string{"LD_PRELOAD=" + s.lib, "SNIB_SHIM=" + s.file.Name(), "SNIB_SYNCED=" + s.synced}
}

// SetClock sets the clock ahead of the true time, or behind it if ahead is negative.
func (s *Shim) SetClock(ahead time.Duration) {
	s.t.Helper()
	s.offset = ahead
	s.writeOrders()
}

// StepClock sets the clock forward, or back if by is negative.
func (s *Shim) StepClock(by time.Duration) {
	s.t.Helper()
	s.SetClock(s.offset + by)
}

// FailFsync sets whether fsync fails.
func (s *Shim) FailFsync(fails bool) {
	s.t.Helper()
	s.fsyncFails = fails
	s.writeOrders()
}

// FillDisk sets whether the disk is full. Files can't be written then.
func (s *Shim) FillDisk(full bool) {
	s.t.Helper()
	s.isFull = full
	s.writeOrders()
}

// CutPower leaves of the files in dir what was on the disk for certain: what fsync has put there.
// The server that wrote them must have been killed.
func (s *Shim) CutPower(dir string) {
	s.t.Helper()
	notes, err := os.ReadFile(s.synced)
	Must(s.t, err, "cut the power")
	sizes := make(map[uint64]int64) // by inode
	for len(notes) >= 16 {
		sizes[binary.NativeEndian.Uint64(notes)] = int64(binary.NativeEndian.Uint64(notes[8:])) //nolint:gosec // a size
		notes = notes[16:]
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			err = os.Truncate(path, min(info.Size(), sizes[inode(info)]))
		}
		return err
	})
	Must(s.t, err, "cut the power")
}

func (s *Shim) writeOrders() {
	s.t.Helper()
	orders := binary.NativeEndian.AppendUint64(nil, uint64(s.offset))
	for _, is := range []bool{s.fsyncFails, s.isFull} {
		order := uint64(0)
		if is {
			order = 1
		}
		orders = binary.NativeEndian.AppendUint64(orders, order)
	}
	if _, err := s.file.WriteAt(orders, 0); err != nil {
		s.t.Fatalf("give the shim its orders: %v", err)
	}
}
