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
		h := driver.Holding{Token: 7, Holder: driver.Holder{Host: "host"}, Held: held}
		if got := newEvent(eventReleased, "job", h).line(); !strings.HasSuffix(got, want) {
			t.Errorf("of a hold of %v: %q, want the end %q", held, got, want)
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
		cell := tableRow(driver.Status{Holders: []driver.Holding{h}})[2]
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
			a.printShow(s, st, "table"),
			l.report(s, leaks), l.report(s, nil))
		if err != nil || strings.ContainsAny(out.String(), "\x1b\a\u202e") {
			t.Errorf("-o %s prints %q, %v", output, out.String(), err)
		}
	}
}

// TestTable checks what a table says of a semaphore, and of a lock that nobody holds.
func TestTable(t *testing.T) {
	hold := driver.Holding{Token: 7, Holder: driver.Holder{Host: "host", PID: 1}, Held: time.Minute, Left: time.Second}
	waiting := []driver.Waiting{{Waited: time.Second}}
	got := table([]driver.Status{
		{Name: "pool", Slots: 3, Holders: []driver.Holding{hold, hold}},
		{Name: "free", Waiters: waiting},
	})
	want := "NAME  HOLDER              HELD   LEFT  TOKEN  WAITING\n" +
		"pool  2 of 3: host pid 1  1m00s  1s    7      0\n" +
		"free  -                   -      -     -      1\n"
	if got != want {
		t.Errorf("table =\n%s\nwant\n%s", got, want)
	}
}
