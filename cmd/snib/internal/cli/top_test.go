package cli

import (
	"bytes"
	"fmt"
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
			Owner: "o", Token: token, Holder: driver.Holder{Host: strings.Repeat("host", 30), PID: 7, Label: "make"}, Held: time.Minute, Left: time.Second,
		}}}
		if i == 3 {
			for w := range 100 {
				st.Waiters = append(st.Waiters, driver.Waiting{Owner: fmt.Sprint(w), Waited: time.Duration(w+1) * time.Second})
			}
		}
		all[name] = st
	}
	return all
}

// TestScene checks that the busiest lock comes first, grants are counted, waits are summarised,
// and the frame fits the terminal.
func TestScene(t *testing.T) {
	top := &topCommand{app: &app{}, grants: make(map[string]int), url: "redis://" + strings.Repeat("long.", 30)}
	first := busyStore(50, 1)
	top.newFrame(nil, first)
	second := busyStore(50, 1)
	st := second["lock-007"]
	st.Holders = []driver.Holding{{Owner: "other", Token: 2, Held: time.Second, Left: time.Second}}
	second["lock-007"] = st
	sc := top.newFrame(first, second)
	if sc.rows[0].name != "lock-003" || sc.rows[1].name != "lock-007" || sc.rows[1].grants != 1 || sc.rows[2].grants != 0 {
		t.Errorf("the busiest are %+v", sc.rows[:3])
	}
	text := sc.render(80, 24)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 23 { // the last line says which key ends it
		t.Errorf("%d lines on a terminal of 24", len(lines))
	}
	for _, l := range lines {
		if n := len([]rune(l)); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	for _, want := range []string{"50 locks, 50 held by 50 holders; 100 waiters", "p50 50s, p90 1m31s, p99 1m39s, at most 1m40s", "NAME"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	var out bytes.Buffer
	top.out, top.output = &out, &choice{value: "json"}
	if err := top.report(sc, "", ""); err != nil {
		t.Fatal(err)
	}
	const want = `"count":{"locks":50,"held":50,"shared":0,"slots":0,"holders":50,"waiters":100},"waited":{"p50":50.`
	if doc := out.String(); !strings.Contains(doc, want) || !strings.Contains(doc, `,"max":100},"locks":[{"name":"lock-003",`) || strings.Count(doc, "\n") != 1 ||
		strings.Count(doc, `"grants":1`) != 1 {
		t.Errorf("as JSON: %s", doc)
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("a scene has colours, which NO_COLOR forbids")
	}
	top.newFrame(second, busyStore(1, 1))
	if len(top.grants) > 1 {
		t.Errorf("locks that are gone are remembered: %v", top.grants)
	}
}

// TestScreen checks that the frame follows the terminal's size, and that q, Esc
// and Ctrl-C end the program.
func TestScreen(t *testing.T) {
	top := &topCommand{app: &app{}, grants: make(map[string]int)}
	var m tea.Model = screen{width: 80, height: 24}
	if text := m.View().Content; !strings.Contains(text, "looking") || !strings.Contains(text, "q to quit") {
		t.Errorf("before the first look it shows %q", text)
	}
	m, _ = m.Update(tea.WindowSizeMsg{Width: 100, Height: 10})
	m, _ = m.Update(top.newFrame(nil, busyStore(50, 1)))
	if n := strings.Count(m.View().Content, "\n"); n != 9 {
		t.Errorf("on 10 lines it shows %d", n+1)
	}
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}, {Code: tea.KeyEscape}} {
		if _, cmd := m.Update(key); cmd == nil {
			t.Errorf("%s does not end it", key)
		} else if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%s does something else", key)
		}
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"}); cmd != nil {
		t.Errorf("x does something")
	}
}
