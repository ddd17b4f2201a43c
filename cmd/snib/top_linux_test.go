package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTopOnATerminal checks that snib top shows holders and waiters, follows changes, and gives
// the terminal back when a key ends it.
func TestTopOnATerminal(t *testing.T) {
	redisStore(t)
	_, stop := startHolder(t, "deploy")
	startWaiter(t, "deploy")
	for _, key := range []string{"q", ctrlC} {
		c := startOnTerminal(t, "snib", "top")
		c.awaitScreen(`1 lock, 1 held by 1 holder; 1 waiter`)
		c.awaitScreen(`deploy +\S+ pid \d+ \(hold by \S+\)`)
		if key == "q" {
			if out, code := snib(t, "lock", "other", "--ttl", "10m"); code != 0 {
				t.Fatal(out)
			}
			c.awaitScreen(`other`)
			if out, code := snib(t, "release", "other", "--force", "--yes"); code != 0 {
				t.Fatal(out)
			}
		}
		c.press(key)
		if code := c.wait(); code != 0 {
			t.Errorf("after %q the exit code is %d: %s", key, code, c.screenText())
		}
		const leave = "\x1b[?1049l" // leave the alternate screen
		c.awaitScreen(regexp.QuoteMeta(leave))
	}
	stop()
}

// TestTopReleases checks that snib top releases the lock that was selected, after its name was
// typed, and prints the audit line at the end.
func TestTopReleases(t *testing.T) {
	redisStore(t)
	for _, name := range []string{"alpha", "deploy"} {
		if out, code := snib(t, "lock", name, "--ttl", "10m"); code != 0 {
			t.Fatal(out)
		}
	}
	c := startOnTerminal(t, "snib", "top", "--sort", "name")
	c.awaitScreen(`> alpha`)
	c.press("/dep\r")
	c.awaitScreen(`filter \("dep`)
	c.press("x")
	c.awaitScreen(`deploy is held by`)
	c.press("its host is gone\r")
	c.awaitScreen(`type the name`)
	c.press("deploy\r")
	c.awaitScreen(`ed: deploy was held by`) // of "releasing deploy", only what follows "releas" is drawn anew
	if strings.Contains(c.screenText(), "outcome") {
		t.Errorf("the audit line is in the picture: %s", c.screenText())
	}
	c.press("q")
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.screenText())
	}
	c.awaitScreen(`"lock":"deploy".*"reason":"its host is gone","outcome":"broken"`)
	if out, _ := snib(t, "ls", "-o", "name"); out != "alpha\n" {
		t.Errorf("what is still held: %q", out)
	}
}

// TestTopWithoutATerminal checks the plain text output, and the error if the store is down.
func TestTopWithoutATerminal(t *testing.T) {
	node, _ := redisStore(t)
	_, stop := startHolder(t, "deploy")
	out, code := snib(t, "top", "-n", "2")
	if code != 0 || strings.Count(out, "1 lock, 1 held by 1 holder; 0 waiters") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d: %q", code, out)
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	stop()
	node.Kill()
	if out, code := snib(t, "top"); code != 69 || strings.Count(out, "\n") != 1 {
		t.Errorf("without a server: exit code %d: %s", code, out)
	}
	if out, code := snib(t, "top", "-n", "-1"); code != 64 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestTopSurvivesAnOutage checks that without a terminal the requested number of snapshots is
// printed, and that one that failed does not count.
func TestTopSurvivesAnOutage(t *testing.T) {
	node, dir := redisStore(t)
	// How each snapshot begins.
	prefixes := map[string]string{"table": "snib top - ", "json": `{"schema":"snib.top/1",`}
	tops := make(map[string]*proc)
	for output := range prefixes {
		file := filepath.Join(dir, output)
		tops[output] = start(t, "sh", "-c", `exec snib top -n 3 -o "$1" >"$0" 2>"$0.err"`, file, output)
	}
	for output, begin := range prefixes {
		awaitText(t, filepath.Join(dir, output), begin)
	}
	node.Kill()
	for output := range prefixes {
		awaitText(t, filepath.Join(dir, output+".err"), "still watching")
	}
	node.Restart()
	for output, begin := range prefixes {
		code, text := tops[output].wait(), read(filepath.Join(dir, output))
		if code != 0 || strings.Count(text, begin) != 3 || strings.Contains(text, "still watching") {
			t.Errorf("-o %s: exit code %d, want 0 after 3 looks: %s%s", output, code, text, read(filepath.Join(dir, output+".err")))
		}
	}
}

// TestLeaksAsks checks that on a terminal --fix shows what it would free, and frees exactly
// that if the user types yes.
func TestLeaksAsks(t *testing.T) {
	node, _ := redisStore(t)
	if out, code := snib(t, "lock", "forever", "--ttl", "1h"); code != 0 {
		t.Fatal(out)
	}
	node.Must("PERSIST", "forever")
	for _, tt := range []struct {
		answer string
		code   int
		left   int64
	}{{"y\r", 64, 1}, {"\r", 64, 1}, {"yes\r", 0, 0}} {
		c := startOnTerminal(t, "snib", "leaks", "--fix")
		c.awaitScreen(`endless: forever: held by .*, without an end`)
		c.awaitScreen(`type yes to free 1 lock: `)
		c.press(tt.answer)
		if code := c.wait(); code != tt.code {
			t.Errorf("after %q the exit code is %d, want %d: %s", tt.answer, code, tt.code, c.screenText())
		}
		if n := node.Must("EXISTS", "forever"); n != tt.left {
			t.Errorf("after %q the lock's key is there %v times, want %d", tt.answer, n, tt.left)
		}
	}
}

// TestLeaksComparesBeforeItFrees checks that --fix leaves a hold alone that replaced the found
// one while the user was asked.
func TestLeaksComparesBeforeItFrees(t *testing.T) {
	node, _ := redisStore(t)
	if out, code := snib(t, "lock", "forever", "--ttl", "1h"); code != 0 {
		t.Fatal(out)
	}
	node.Must("PERSIST", "forever")
	c := startOnTerminal(t, "snib", "leaks", "--fix")
	c.awaitScreen(`type yes to free 1 lock: `)
	for _, command := range [][]string{{"release", "forever", "--force", "--yes"}, {"lock", "forever", "--ttl", "1h"}} {
		if out, code := snib(t, command...); code != 0 {
			t.Fatal(out)
		}
	}
	c.press("yes\r")
	c.awaitScreen(`changed\s+in\s+the\s+meantime`)
	if code := c.wait(); code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, c.screenText())
	}
	if n := node.Must("EXISTS", "forever"); n != int64(1) {
		t.Errorf("a hold that was not found is freed")
	}
}
