//go:build unix

package cli

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib"
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
