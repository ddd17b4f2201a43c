package child

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// TestDieWithParent kills a supervisor. Its program must end, and what that has started.
func TestDieWithParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	supervisor := startProgram("supervisor", file)
	grandchild, program := awaitPID(t, file), awaitPID(t, file+".child")
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait() // it was killed
	livetest.Await(t, "end of both processes", func() error {
		if !Gone(program) || !Gone(grandchild) {
			return errors.New("one of them runs")
		}
		return nil
	})
}

// TestKeepIsRefused checks that nobody relies on a file that the program would not have.
func TestKeepIsRefused(t *testing.T) {
	c, err := Start(Program{Path: os.Args[0], Keep: []*os.File{os.Stdin}})
	if c != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Start with a file to keep = %v, %v; want ErrUnsupported", c, err)
	}
}
