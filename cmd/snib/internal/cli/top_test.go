package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sniblock/snib/driver"
)

// busyStore returns a snapshot of n locks. 100 waiters wait for the fourth.
func busyStore(n int, token uint64) snapshot {
	all := make(snapshot)
	for i := range n {
		name := fmt.Sprintf("lock-%03d", i)
		st := driver.Status{Name: name, Holders: []driver.Holding{{
			ID: "o", Token: token, Holder: driver.Holder{Host: strings.Repeat("host", 30), PID: 7, Label: "make"}, Held: time.Minute, Left: time.Second,
		}}}
		if i == 3 {
			for w := range 100 {
				st.Waiters = append(st.Waiters, driver.Waiting{ID: fmt.Sprint(w), Waited: time.Duration(w+1) * time.Second})
			}
		}
		all[name] = st
	}
	return all
}

// newTop returns a call of snib top without a store.
func newTop() *topCommand {
	return &topCommand{app: &app{}, order: &choice{value: "busy"}, grants: make(map[string]int)}
}

// TestFrame checks that the busiest lock comes first, grants are counted, waits are summarised,
// and the text is as wide as it may be.
func TestFrame(t *testing.T) {
	top := newTop()
	top.url = "redis://" + strings.Repeat("long.", 30)
	first := busyStore(50, 1)
	top.newFrame(nil, first, 0)
	second := busyStore(50, 1)
	st := second["lock-007"]
	st.Holders = []driver.Holding{{ID: "other", Token: 2, Held: time.Second, Left: time.Second}}
	second["lock-007"] = st
	f := top.newFrame(first, second, 0)
	if f.rows[0].name != "lock-003" || f.rows[1].name != "lock-007" || f.rows[1].grants != 1 || f.rows[2].grants != 0 {
		t.Errorf("the busiest are %+v", f.rows[:3])
	}
	text := f.render(80)
	for l := range strings.Lines(text) {
		if n := len([]rune(l)) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	for _, want := range []string{"50 locks, 50 held by 50 holders; 100 waiters", "p50 50s, p90 1m31s, p99 1m39s, at most 1m40s", "NAME", "lock-049"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	var out bytes.Buffer
	top.out, top.output = &out, &choice{value: "json"}
	if err := top.report(f, ""); err != nil {
		t.Fatal(err)
	}
	const want = `"count":{"locks":50,"held":50,"shared":0,"slots":0,"holders":50,"waiters":100},"waited":{"p50":50.`
	if doc := out.String(); !strings.Contains(doc, want) || !strings.Contains(doc, `,"max":100},"locks":[{"name":"lock-003",`) || strings.Count(doc, "\n") != 1 ||
		strings.Count(doc, `"grants":1`) != 1 {
		t.Errorf("as JSON: %s", doc)
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("a frame has colours, which NO_COLOR forbids")
	}
	for n := range historyLimit {
		top.newFrame(second, busyStore(1, uint64(n+2)), 0)
	}
	if len(top.grants) > 1 || len(top.history) != historyLimit {
		t.Errorf("locks that are gone are remembered: %v, and %d events", top.grants, len(top.history))
	}
}

// TestSort checks each order of snib top.
func TestSort(t *testing.T) {
	lock := func(name string, held, left time.Duration, waits ...time.Duration) driver.Status {
		st := driver.Status{Name: name, Holders: []driver.Holding{{ID: "o", Token: 1, Held: held, Left: left}}}
		for _, w := range waits {
			st.Waiters = append(st.Waiters, driver.Waiting{Waited: w})
		}
		return st
	}
	now := snapshot{
		"a": lock("a", 1, 9, 1, 1),
		"b": lock("b", 3, driver.NoExpiry, 5),
		"c": lock("c", 2, 8),
	}
	top := newTop()
	top.grants["c"] = 7
	for _, tt := range []struct{ order, want string }{
		{"busy", "abc"}, {"grants", "cab"}, {"longest", "bac"}, {"held", "bca"}, {"left", "cab"}, {"name", "abc"},
	} {
		top.order = &choice{value: tt.order}
		got := ""
		for _, r := range top.newFrame(now, now, 0).rows {
			got += r.name
		}
		if got != tt.want {
			t.Errorf("in the order %q the locks are %s, want %s", tt.order, got, tt.want)
		}
	}
}

// A fakeScreen is a screen without a terminal.
type fakeScreen struct {
	tea.Model
	t        *testing.T
	released []string // name, owner and reason of each hold that was to be released
}

func newFakeScreen(t *testing.T, width, height int) *fakeScreen {
	s := &fakeScreen{t: t}
	checkReason := func(name, reason string) error {
		if name == "lock-000" && reason == "" {
			return usagef("a reason is required")
		}
		return nil
	}
	s.Model = screen{width: width, height: height, checkReason: checkReason, release: func(name string, holds []driver.Holding, reason string) {
		for _, h := range holds {
			s.released = append(s.released, name+" "+h.ID+" "+reason)
		}
	}}
	return s
}

// press presses keys: names such as "enter", or else texts that are typed. It reports whether the
// program ended.
func (s *fakeScreen) press(keys ...string) (ended bool) {
	named := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "pgdown": {Code: tea.KeyPgDown},
		"home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd}, "backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	for _, key := range keys {
		messages := []tea.KeyPressMsg{named[key]}
		if _, known := named[key]; !known {
			messages = nil
			for _, r := range key {
				messages = append(messages, tea.KeyPressMsg{Code: r, Text: string(r)})
			}
		}
		for _, m := range messages {
			var cmd tea.Cmd
			s.Model, cmd = s.Update(m)
			if cmd != nil {
				_, ended = cmd().(tea.QuitMsg)
			}
		}
	}
	return ended
}

func (s *fakeScreen) show(f frame) { s.Model, _ = s.Update(f) }

// expect fails the test if the picture lacks one of texts.
func (s *fakeScreen) expect(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if content := s.View().Content; !strings.Contains(content, text) {
			s.t.Errorf("it does not show %q:\n%s", text, content)
		}
	}
}

// TestScreen checks that each picture fits the terminal, and which keys end the program.
func TestScreen(t *testing.T) {
	top := newTop()
	s := newFakeScreen(t, 80, 24)
	s.expect("looking", "q to quit")
	s.Model, _ = s.Update(tea.WindowSizeMsg{Width: 60, Height: 10})
	s.show(top.newFrame(nil, busyStore(50, 1), 0))
	s.expect("> lock-0")
	for _, keys := range [][]string{nil, {"enter"}, {"x"}, {"why", "enter"}, {"esc"}, {"/"}} {
		s.press(keys...)
		lines := strings.Split(s.View().Content, "\n")
		if len(lines) > 10 {
			t.Errorf("after %q it shows %d lines on 10", keys, len(lines))
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > 60 {
				t.Errorf("after %q there are %d columns of 60: %s", keys, n, l)
			}
		}
	}
	s.press("esc")
	for _, key := range []string{"q", "esc", "ctrl+c"} {
		if !s.press(key) {
			t.Errorf("%s does not end it", key)
		}
	}
	if s.press("w") || s.press("enter", "esc") || s.press("/", "q", "esc") || s.press("x", "q", "esc") {
		t.Errorf("a key that means something else ends it")
	}
	if !s.press("/", "ctrl+c") {
		t.Errorf("Ctrl-C does not end it while something is typed")
	}
}

// TestSelect checks that the selection follows its lock, stays on the screen, and moves on when its
// lock is gone.
func TestSelect(t *testing.T) {
	top := newTop()
	s := newFakeScreen(t, 100, 12) // room for 5 locks
	s.show(top.newFrame(nil, busyStore(50, 1), 0))
	s.press("down", "down")
	s.expect("> lock-001")
	s.press("s", "s", "s", "s", "s")
	s.expect("s to sort (name)", "> lock-001", "  lock-000")
	s.press("pgdown")
	s.expect("> lock-006", "  lock-005")
	s.press("end")
	s.expect("> lock-049")
	s.show(top.newFrame(nil, busyStore(20, 1), 0))
	s.expect("> lock-019")
	s.press("/", "LOCK-01x", "backspace")
	s.expect("filter: LOCK-01_", "> lock-019", "  lock-018")
	s.press("enter", "home")
	s.expect(`/ to filter ("LOCK-01"; esc for all)`, "> lock-010")
	s.press("esc", "home")
	s.expect("> lock-000")
	s.press("/", "nothing")
	s.press("enter", "enter", "x")
	s.expect("nobody holds it")
	s.show(top.newFrame(nil, nil, 0))
	s.press("esc", "enter", "down", "x")
	s.expect("0 locks")
}

// TestDetails checks that the details have the holder, the queue and the history, and stay if the
// lock is free.
func TestDetails(t *testing.T) {
	top := newTop()
	s := newFakeScreen(t, 100, 40)
	first := busyStore(5, 1)
	s.show(top.newFrame(nil, first, 0))
	s.press("enter")
	s.expect("lock-003", "held, exclusive", "(make)", "1. ", "lines more: see snib show", "held         lock-003")
	second := busyStore(5, 2)
	delete(second, "lock-003")
	s.show(top.newFrame(first, second, time.Millisecond))
	s.expect("lock-003", "free", "released     lock-003")
	if text := s.View().Content; strings.Contains(text, "lock-004") {
		t.Errorf("it shows another lock:\n%s", text)
	}
	s.press("esc")
	s.expect("> lock-000") // in its place
}

// TestScreenReleases checks that a release takes the name of the lock, and the holds that were
// shown.
func TestScreenReleases(t *testing.T) {
	top := newTop()
	s := newFakeScreen(t, 160, 24)
	s.show(top.newFrame(nil, busyStore(5, 1), 0))
	for _, keys := range [][]string{{"x", "esc"}, {"x", "why", "enter", "esc"}, {"x", "enter", "enter"}, {"x", "enter", "lock-00", "enter"}} {
		s.press(keys...)
		s.expect("nothing was released", "> lock-003")
	}
	if s.released != nil {
		t.Fatalf("without the name it releases %q", s.released)
	}
	s.press("down", "x", "enter")
	s.expect("a reason is required", "> lock-000")
	s.press("home", "enter", "x")
	s.expect("lock-003 is held by", "the holder may still be at work")
	s.press("its host is gone", "enter", "lock-003")
	later := busyStore(5, 2)
	for name, st := range later {
		st.Holders[0].ID = "another"
		later[name] = st
	}
	s.show(top.newFrame(nil, later, 0))
	s.press("enter")
	if want := []string{"lock-003 o its host is gone"}; !slices.Equal(s.released, want) {
		t.Errorf("it releases %q, want %q", s.released, want)
	}
	s.Model, _ = s.Update(noticeMsg("released: lock-003"))
	s.expect("released: lock-003")
	s.show(top.newFrame(nil, snapshot{"queue": {Name: "queue", Holders: []driver.Holding{{Foreign: "a list"}}}}, 0))
	s.press("x")
	s.expect("it may not be a lock: it is a list")
}
