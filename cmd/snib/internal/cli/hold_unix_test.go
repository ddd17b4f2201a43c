//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/memlock"
)

// TestKeeperOutlastsTERM sends a keeper, while its script lives, the signals that a service manager
// or a terminal may send to both. It must hold the lock until it gets endSignal.
func TestKeeperOutlastsTERM(t *testing.T) {
	locker, err := snib.New(memlock.New(), snib.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	lock, err := locker.Acquire(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	script, err := child.Watch(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	sigs := make(chan os.Signal)
	h := &holdCommand{script: script, runCommand: &runCommand{ttl: &duration{value: time.Hour}, sigs: sigs}}
	code := make(chan int)
	go func() { code <- h.guard(holds{lock}) }()
	ignored := []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1}
	for _, s := range append(ignored, endSignal) {
		select {
		case sigs <- s:
		case got := <-code:
			t.Fatalf("it ended with %d before %v", got, s)
		}
	}
	if got := <-code; got != exitOK {
		t.Errorf("after %v it ended with %d, want %d", endSignal, got, exitOK)
	}
}

// TestKeeperGivesUp checks that a keeper ends if its parent ended before it had read the grant.
func TestKeeperGivesUp(t *testing.T) {
	script, err := child.Watch(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	h := &holdCommand{script: script, runCommand: &runCommand{sigs: make(chan os.Signal, 64)}}
	h.giveUp(strings.NewReader(""))
	if <-h.sigs; <-h.sigs != endSignal {
		t.Error("the keeper goes on with a hold that nobody knows of")
	}
}

// TestNoStartAfterLoss checks that neither a command nor a script begins under a hold that has
// ended since its grant, because this process stood still.
func TestNoStartAfterLoss(t *testing.T) {
	file, out := filepath.Join(t.TempDir(), "ran"), new(strings.Builder)
	r := &runCommand{app: &app{out: out}, sigs: make(chan os.Signal, 1),
		name: "x", names: []string{"x"}, argv: []string{"sh", "-c", "echo >" + file},
		ttl: &duration{value: time.Hour}, killAfter: &duration{}, maxHold: &duration{}, timeout: &duration{}}
	store := &backend.Store{Driver: memlock.New()}
	locker, _ := snib.New(store, snib.TTL(time.Hour), snib.MaxHold(time.Millisecond))
	defer locker.Close()
	lock, err := locker.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	<-lock.Context().Done()
	g, err := r.start(store, holds{lock}, "/bin/sh", nil)
	if err == nil {
		<-g.child.Events()
	}
	if _, none := os.Stat(file); none == nil || exitCode(err) != exitLost || !strings.HasPrefix(message(err), "lost x: ") {
		t.Errorf("start = %v, and for the file of the command %v; want the loss, and no file", err, none)
	}
	if err := r.printHold("shell", lock, time.Hour, ""); exitCode(err) != exitLost || out.Len() > 0 {
		t.Errorf("printHold = %v, and it printed %q; want the loss, and nothing", err, out)
	}
}
