package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTopOnATerminal: it draws what is held and who waits, follows, and gives the terminal back when a key ends it.
func TestTopOnATerminal(t *testing.T) {
	redisStore(t)
	_, stop := runs(t, "deploy")
	waits(t, "deploy")
	for _, key := range []string{"q", ctrlC} {
		c := sit(t, "snib", "top")
		c.see(`1 lock, 1 held by 1 holder; 1 waiter`)
		c.see(`deploy +\S+ pid \d+ \(hold\)`)
		if key == "q" {
			if out, code := snib(t, "lock", "other", "--ttl", "10m"); code != 0 {
				t.Fatal(out)
			}
			c.see(`other`)
			if out, code := snib(t, "release", "other", "--force", "--yes"); code != 0 {
				t.Fatal(out)
			}
		}
		c.press(key)
		if code := c.wait(); code != 0 {
			t.Errorf("after %q the exit code is %d: %s", key, code, c.shows())
		}
		const leave = "\x1b[?1049l" // the alternate screen
		c.see(regexp.QuoteMeta(leave))
	}
	stop()
}

// TestTopWithoutATerminal prints plain text, and says why it can't go on.
func TestTopWithoutATerminal(t *testing.T) {
	node, _ := redisStore(t)
	_, stop := runs(t, "deploy")
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

// TestTopSurvivesAnOutage: what it prints without a terminal is as many looks as were asked for, and one that failed is none of them.
func TestTopSurvivesAnOutage(t *testing.T) {
	node, dir := redisStore(t)
	looks := map[string]string{"table": "snib top - ", "json": `{"schema":"snib.top/1",`} // begin with
	tops := make(map[string]*proc)
	for output := range looks {
		file := filepath.Join(dir, output)
		tops[output] = start(t, "sh", "-c", `exec snib top -n 3 -o "$1" >"$0" 2>"$0.err"`, file, output)
	}
	for output, begin := range looks {
		awaitText(t, filepath.Join(dir, output), begin)
	}
	node.Kill()
	for output := range looks {
		awaitText(t, filepath.Join(dir, output+".err"), "looking on")
	}
	node.Restart()
	for output, begin := range looks {
		code, text := tops[output].wait(), read(filepath.Join(dir, output))
		if code != 0 || strings.Count(text, begin) != 3 || strings.Contains(text, "looking on") {
			t.Errorf("-o %s: exit code %d, want 0 after 3 looks: %s%s", output, code, text, read(filepath.Join(dir, output+".err")))
		}
	}
}

// TestLeaksAsks: on a terminal --fix shows what it would free, and frees it when a person says yes, and nothing else.
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
		c := sit(t, "snib", "leaks", "--fix")
		c.see(`endless: forever: held by .*, without an end`)
		c.see(`type yes to free 1 lock: `)
		c.press(tt.answer)
		if code := c.wait(); code != tt.code {
			t.Errorf("after %q the exit code is %d, want %d: %s", tt.answer, code, tt.code, c.shows())
		}
		if n := node.Must("EXISTS", "forever"); n != tt.left {
			t.Errorf("after %q the lock's key is there %v times, want %d", tt.answer, n, tt.left)
		}
	}
}

// TestLeaksComparesBeforeItFrees: a hold that ends, and is followed by another, while a person thinks about it, is not what was found.
func TestLeaksComparesBeforeItFrees(t *testing.T) {
	node, _ := redisStore(t)
	if out, code := snib(t, "lock", "forever", "--ttl", "1h"); code != 0 {
		t.Fatal(out)
	}
	node.Must("PERSIST", "forever")
	c := sit(t, "snib", "leaks", "--fix")
	c.see(`type yes to free 1 lock: `)
	for _, command := range [][]string{{"release", "forever", "--force", "--yes"}, {"lock", "forever", "--ttl", "1h"}} {
		if out, code := snib(t, command...); code != 0 {
			t.Fatal(out)
		}
	}
	c.press("yes\r")
	c.see(`has\s+changed\s+meanwhile`)
	if code := c.wait(); code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, c.shows())
	}
	if n := node.Must("EXISTS", "forever"); n != int64(1) {
		t.Errorf("a hold that was not found is freed")
	}
}
