package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// TestFullDisk checks that on a full disk the store counts as unavailable, and
// the command does not run.
func TestFullDisk(t *testing.T) {
	dir := newStore(t)
	disk := filepath.Join(dir, "disk")
	if err := livetest.Disk(t, disk, "size=256k,mode=0755"); err != nil {
		t.Skipf("no disk to fill: %v", err)
	}
	fill := func() {
		f, err := os.Create(filepath.Join(disk, "rest"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
	}
	run := func(name string) *exec.Cmd {
		return command(t, "snib", "run", "-w", "0", "-u", "sqlite:"+disk+"/locks.db", name, "--", "touch", dir+"/ran")
	}
	fill()
	checkFailure(t, run("name"), 69, "no space left on device")
	if err := os.Remove(filepath.Join(disk, "rest")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("name").CombinedOutput(); err != nil { // there is room again
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(dir + "/ran"); err != nil {
		t.Fatal(err)
	}
}
