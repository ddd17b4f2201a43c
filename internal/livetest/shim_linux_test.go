package livetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestShim checks that the shim steps the clock of a program, fails its fsync, fills its disk, and
// cuts its files back to what was synced.
func TestShim(t *testing.T) {
	s := NewShim(t, "gcc")
	run := func(program string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Env = append(append(os.Environ(), s.Env()...), "TZ=UTC")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const step = 10 * 24 * time.Hour
	for _, ahead := range []time.Duration{0, step, -step} {
		s.SetClock(ahead)
		want := time.Now().Add(ahead).UTC().Format("2006-01")
		if got, err := run("date", "+%Y-%m"); err != nil || got != want+"\n" {
			t.Errorf("%v ahead: it is %q, %v, want %q", ahead, got, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	for _, fails := range []bool{false, true, false} {
		s.FailFsync(fails)
		if out, err := run("dd", "if=/dev/null", "of="+file, "conv=fsync"); (err != nil) != fails {
			t.Errorf("fsync fails: %v, want %v\n%s", err, fails, out)
		}
	}
	for _, full := range []bool{true, false} {
		s.FillDisk(full)
		out, err := run("dd", "if=/dev/zero", "bs=100", "count=1", "of="+file)
		if (err != nil) != full || full && !strings.Contains(out, "No space left") {
			t.Errorf("the disk is full (%v): %v\n%s", full, err, out)
		}
	}
	dir := t.TempDir()
	file = filepath.Join(dir, "file")
	for _, args := range [][]string{{"bs=100"}, {"bs=50", "conv=fsync,notrunc"}, {"bs=200", "conv=notrunc"}} {
		if out, err := run("dd", append(args, "if=/dev/zero", "count=1", "of="+file)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	s.CutPower(dir)
	if info, err := os.Stat(file); err != nil || info.Size() != 100 {
		t.Errorf("after a power cut the file is %v, %v, want the 100 bytes that it had at the fsync", info, err)
	}
}

// waiter waits for a condition, first until a time of the wall clock and then until one of the
// monotonic clock, and prints how many milliseconds that took.
const waiter = `#include <pthread.h>
#include <stdio.h>
#include <time.h>

static long now(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int main(void) {
	clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
	for (int i = 0; i < 2; i++) {
		pthread_condattr_t attr;
		pthread_cond_t cond;
		pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, clocks[i]);
		pthread_cond_init(&cond, &attr);
		struct timespec until;
		clock_gettime(clocks[i], &until);
		until.tv_sec++;
		long began = now();
		pthread_mutex_lock(&mutex);
		while (!pthread_cond_timedwait(&cond, &mutex, &until))
			;
		printf("%ld\n", now() - began);
	}
}
`

// TestShimWaits checks that who waits until a time waits as long as the stepped clock says, and not
// until the true time: a server whose clock is behind would not wait at all, and turn round and
// round.
func TestShimWaits(t *testing.T) {
	s := NewShim(t, "gcc")
	program := filepath.Join(t.TempDir(), "waiter")
	gcc := exec.Command("gcc", "-x", "c", "-o", program, "-")
	gcc.Stdin = strings.NewReader(waiter)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		s.SetClock(ahead)
		cmd := exec.Command(program)
		cmd.Env, cmd.WaitDelay = append(os.Environ(), s.Env()...), time.Second
		late := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
		out, err := cmd.Output()
		late.Stop()
		if err != nil {
			t.Fatalf("%v ahead: it does not end: %v", ahead, err)
		}
		for clock, text := range map[string]string{"wall": strings.Fields(string(out))[0],
			"monotonic": strings.Fields(string(out))[1]} {
			if ms, err := strconv.Atoi(text); err != nil || ms < 990 {
				t.Errorf("%v ahead: a wait of a second by the %s clock takes %s ms", ahead, clock, text)
			}
		}
	}
}
