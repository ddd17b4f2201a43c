//go:build linux

package sqlitelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/outagetest"
)

// TestFailures proves cells of SQLite in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	dir := mount(t, "size=1m")
	path, filler := filepath.Join(dir, "locks.db"), filepath.Join(dir, "filler")
	store := outagetest.Store{Open: func(t *testing.T) driver.Driver { return open(t, path) }}
	store.Failures(t,
		outagetest.Failure{Name: "FullDisk", Begin: func(t *testing.T) func() {
			f, err := os.Create(filler)
			must(t, err)
			for err == nil { // the write-ahead log has no room to grow
				_, err = f.Write(make([]byte, 512))
			}
			must(t, f.Close())
			return func() { must(t, os.Remove(filler)) }
		}},
	)
	// There is no password, no grace period, and no server that could be dead.
	move := func(*testing.T) func() {
		must(t, os.Rename(path, path+".old"))
		return func() { must(t, os.RemoveAll(path)); must(t, os.Rename(path+".old", path)) }
	}
	store.Errors(t,
		outagetest.Failure{Name: "Hung", Says: "no answer within ", Begin: func(t *testing.T) func() {
			p, _ := startStopped(t, "stop in transaction", path)
			return func() {
				p.Signal(syscall.SIGCONT)
				p.Expect("resumed")
			}
		}},
		outagetest.Failure{Name: "Gone", Denied: true, Says: "replaced or deleted", Begin: move},
		outagetest.Failure{Name: "Folder", Denied: true, Says: "replaced or deleted", Begin: func(t *testing.T) func() {
			end := move(t)
			must(t, os.Mkdir(path, 0o700))
			return end
		}},
	)
}

// TestHungRead has a read that hangs, as the disk may. Neither it nor those behind it outlast their
// contexts, and the driver can be closed.
func TestHungRead(t *testing.T) {
	t.Parallel()
	d := open(t, newPath(t))
	ctx, cancel := context.WithCancel(t.Context())
	hung, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	answers := make(chan error)
	go func() {
		answers <- d.view(ctx, func(*conn) error {
			close(hung)
			<-end
			return nil
		})
	}()
	<-hung
	go func() {
		_, err := d.Status(ctx, "a name")
		answers <- err
	}()
	go func() { answers <- d.List(ctx, "", func(driver.Status) bool { return true }) }()
	wantAnswer := func(want error) {
		t.Helper()
		select {
		case err := <-answers:
			if !errors.Is(err, want) {
				t.Errorf("a call beside a read that hangs = %v, want %v", err, want)
			}
		case <-time.After(livetest.Patience):
			t.Fatalf("a call beside a read that hangs does not return, want %v", want)
		}
	}
	cancel()
	for range 3 {
		wantAnswer(context.Canceled)
	}
	go func() { answers <- d.Close() }()
	wantAnswer(nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
