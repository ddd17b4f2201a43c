package cli

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

var errHalf = errors.New("the other half is down")

// A halfListedStore lists some locks, and then fails.
type halfListedStore struct {
	*memlock.Driver
	names []string
}

func (h halfListedStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	for _, name := range h.names {
		yield(driver.Status{Name: name})
	}
	return errHalf
}

// TestLsOfAHalf checks that the locks that a store lists before it fails are printed, and that
// the failure is reported.
func TestLsOfAHalf(t *testing.T) {
	tests := []struct {
		output string
		names  []string
		want   string // a part of the output; "" means no output
	}{
		{"name", []string{"a", "b"}, "a\nb\n"},
		{"table", []string{"a", "b"}, "NAME"},
		{"json", []string{"a"}, `"name": "a"`},
		{"name", nil, ""},
		{"table", nil, ""},
		{"json", nil, ""},
	}
	for _, tt := range tests {
		var out, errOut bytes.Buffer
		a := &app{out: &out, err: &errOut}
		err := a.ls(t.Context(), &backend.Store{Driver: halfListedStore{memlock.New(), tt.names}, URL: "half:"}, "",
			false, tt.output)
		if !errors.Is(err, errHalf) || exitCode(err) != exitUnavailable {
			t.Errorf("-o %s of %q = %v, want %v", tt.output, tt.names, err, errHalf)
		}
		if !strings.Contains(out.String(), tt.want) || tt.want == "" && out.Len() > 0 || errOut.Len() > 0 {
			t.Errorf("-o %s of %q prints %q and tells %q, want %q and nothing", tt.output, tt.names, out.String(), errOut.String(), tt.want)
		}
	}
}

// TestWatchAfter checks that the duration of a hold is omitted if it is unknown.
func TestWatchAfter(t *testing.T) {
	for held, want := range map[time.Duration]string{
		0:                       "released     job  token 7, host\n",
		time.Microsecond:        "released     job  token 7, after 0ms, host\n",
		1500 * time.Millisecond: "released     job  token 7, after 1s, host\n",
	} {
		var out bytes.Buffer
		w := &watchCommand{app: &app{out: &out}, output: &choice{value: "table"}}
		h := toHolder(driver.Holding{Token: 7, Holder: driver.Holder{Host: "host"}, Held: held})
		if err := w.report(newEvent(eventReleased, "job", &h)); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("of a hold of %v: %q, want the end %q", held, out.String(), want)
		}
	}
}

// TestWatchFits checks that an event fits on a line of 80 columns, with room for the holder,
// however long the lock's name is.
func TestWatchFits(t *testing.T) {
	long := strings.Repeat("é", 300)
	for _, tt := range []struct {
		name, host string
		want       []string
	}{
		{long, "web-1", []string{"é…  token 1795277050060315, web-1\n"}},
		{"job", long, []string{"  job  token 1795277050060315, é", "é…\n"}},
		{long, long, []string{"é…  token 1795277050060315, é", "é…\n"}},
	} {
		e := newEvent(eventAcquired, tt.name, &holderJSON{Token: 1795277050060315, processJSON: processJSON{Host: tt.host}})
		line := e.line(80)
		if n := len([]rune(line)); n > 81 { // including the line feed
			t.Errorf("%d columns: %s", n-1, line)
		}
		for _, want := range tt.want {
			if !strings.Contains(line, want) {
				t.Errorf("%q, want %q in it", line, want)
			}
		}
		if whole := e.line(unlimited); !strings.HasSuffix(whole, tt.name+"  token 1795277050060315, "+tt.host+"\n") {
			t.Errorf("without a limit: %q, want all of it", whole)
		}
	}
}

// TestHeldNotKnown checks that a time that the store does not know is not shown.
func TestHeldNotKnown(t *testing.T) {
	for held, want := range map[time.Duration]struct{ cell, since, phrase, json string }{
		0:                {"-", "-", "held by host", `"token":7,"host":"host","left":1}`},
		time.Microsecond: {"0ms", "Z (0ms)", "held by host for 0ms", `"host":"host","held":0,"left":1}`},
		90 * time.Second: {"1m30s", "Z (1m30s)", "held by host for 1m30s", `"host":"host","held":90,"left":1}`},
	} {
		h := driver.Holding{Token: 7, Holder: driver.Holder{Host: "host"}, Held: held, Left: time.Second}
		text, err := encode(toHolder(h), "")
		if err != nil {
			t.Fatal(err)
		}
		cell := newTableRow(driver.Status{Holders: []driver.Holding{h}}).held
		if cell != want.cell || !strings.HasSuffix(sinceText(h), want.since) || heldBy(h) != want.phrase ||
			!strings.HasSuffix(string(text), want.json) {
			t.Errorf("a hold of %v is shown as %q, %q, %q, %s, want %+v", held, cell, sinceText(h), heldBy(h), text, want)
		}
	}
}

// TestListedNames checks that names from a store can't upset a terminal, and that no
// two names are listed alike.
func TestListedNames(t *testing.T) {
	const evil = "a\x1b]0;owned\a\u202e"
	names := []string{"plain", `in "the" middle`, `"quoted"`, `"`, evil, strconv.Quote(evil), strconv.Quote(strconv.Quote(evil)), "\u009b31m"}
	seen := make(map[string]string)
	for _, name := range names {
		got := listedName(name)
		if other, twice := seen[got]; twice {
			t.Errorf("%q and %q are both listed as %s", name, other, got)
		}
		seen[got] = name
		if back, err := strconv.Unquote(got); got != name && (err != nil || back != name) {
			t.Errorf("%q is listed as %s, which means %q", name, got, back)
		}
	}
	who := driver.Holder{Host: evil, Label: evil}
	st := driver.Status{
		Name: evil,
		Holders: []driver.Holding{{ID: evil, Token: 1, Holder: who, Inherited: true,
			Heirs: []driver.Holder{{PID: 7, Label: evil}}}},
		Waiters: []driver.Waiting{{ID: evil, Holder: who}},
	}
	for _, output := range []string{"table", "name"} {
		var out strings.Builder
		a := &app{out: &out, err: &out}
		s := &backend.Store{Driver: memlock.New(), URL: "sqlite:/" + evil}
		l := &leaksCommand{app: a, output: &choice{value: output}}
		leaks := []leak{{kind: leakForeign, name: evil, problem: evil, library: evil}}
		err := errors.Join(a.printList(s, []driver.Status{st}, output), a.printList(s, nil, output),
			a.printShow(s, st, 0, output),
			l.report(s, leaks), l.report(s, nil))
		if err != nil || strings.ContainsAny(out.String(), "\x1b\a\u202e") {
			t.Errorf("-o %s prints %q, %v", output, out.String(), err)
		}
	}
}

// TestTables checks that a table fits the terminal, that one without a limit and a wide one are
// whole, and that the wide one has a row for each hold.
func TestTables(t *testing.T) {
	name, host := strings.Repeat("é", 300), strings.Repeat("h", 60)
	hold := func(pid int) driver.Holding {
		return driver.Holding{Token: 7, Holder: driver.Holder{Host: host, PID: pid}, Held: time.Minute, Left: time.Second}
	}
	all := []driver.Status{
		{Name: name, Slots: 3, Holders: []driver.Holding{hold(1), hold(2)}, Waiters: []driver.Waiting{{Waited: time.Second}, {Waited: time.Hour}}},
		{Name: "free", Waiters: []driver.Waiting{{Waited: time.Second}}},
	}
	for _, width := range []int{80, 200} {
		for line := range strings.Lines(table(all, width)) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("%d columns, want %d: %s", n, width, line)
			}
		}
	}
	if text := table(all, unlimited); !strings.Contains(text, name+"  2 of 3: "+host+" pid 1  ") {
		t.Errorf("without a limit it is cut:\n%s", text)
	}
	lines := strings.Split(wideTable(all), "\n")
	want := []string{
		name + "  slots 2/3  " + host + " pid 1  1m00s  1s    7      2        1h00m",
		name + "  slots 2/3  " + host + " pid 2  1m00s  1s    7      2        1h00m",
	}
	if len(lines) != 5 || lines[1] != want[0] || lines[2] != want[1] || !strings.HasPrefix(lines[3], "free ") || !strings.HasSuffix(lines[3], " 1s") {
		t.Errorf("wide:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// TestNullTerminated checks that --null prints each name exactly as it is.
func TestNullTerminated(t *testing.T) {
	names := []string{"plain", `"quoted"`, "a\nb", "\x1b[0m", "-x"}
	var out bytes.Buffer
	all := convert(names, func(name string) driver.Status { return driver.Status{Name: name} })
	if err := (&app{out: &out}).printList(&backend.Store{Driver: memlock.New()}, all, "null"); err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(names, "\x00") + "\x00"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
