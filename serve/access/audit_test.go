package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/serve"
)

func TestAuditLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := OpenAuditLog(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Record(Event{Event: EventBreak, Outcome: OutcomeBegun, Who: "ops", Remote: "192.0.2.1", Name: "a\nb", Token: 1 << 60, Reason: "stuck"}); err != nil {
		t.Fatal(err)
	}
	// A program that rotates logs renames the file, and tells us.
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := log.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := log.Record(Event{Event: EventRefused, Remote: "192.0.2.1"}); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("mode = %04o, want 0600", got)
	}
	old, err := os.ReadFile(file + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(old), "\n") != 1 {
		t.Errorf("the log before the rotation has more than one line:\n%s", old)
	}
	var e map[string]any
	if err := json.Unmarshal(old, &e); err != nil {
		t.Fatal(err)
	}
	if e["token"] != "1152921504606846976" || e["name"] != "a\nb" || e["time"] == "" {
		t.Errorf("line = %s, want the token without loss as text, the name, and the time", old)
	}
}

// TestAuditLogIsPipe checks that a pipe, which can't be synced, can be the log.
func TestAuditLogIsPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log := NewAuditLog(w)
	log.file = w
	if err := log.Record(Event{Event: EventBreak}); err != nil {
		t.Errorf("Record = %v", err)
	}
}

// fullDisk takes in some bytes more.
type fullDisk struct {
	bytes.Buffer
	free int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	n, _ := d.Buffer.Write(p[:min(len(p), d.free)])
	if d.free -= n; n < len(p) {
		return n, errors.New("no space left")
	}
	return n, nil
}

// TestAuditLogOnFullDisk checks that half a line is all that a full disk spoils.
func TestAuditLogOnFullDisk(t *testing.T) {
	disk := &fullDisk{free: 10}
	log := NewAuditLog(disk)
	for range 2 {
		if err := log.Record(Event{Event: EventBreak}); err == nil {
			t.Error("Record = nil on a full disk")
		}
	}
	disk.free = 1000
	for range 2 {
		if err := log.Record(Event{Event: EventBreak}); err != nil {
			t.Error(err)
		}
	}
	lines := strings.Split(disk.String(), "\n")
	if len(lines) != 4 || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
		t.Errorf("the log has the lines %q, want half a line and two whole ones", lines)
	}
}

// TestAuditLogIsNotFlooded checks that refusals do not fill the disk, that their number is
// kept, also of those that could not be written, and that they keep no break from being recorded.
func TestAuditLogIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := NewAuditLog(&out)
		record := func(event string) {
			if err := log.Record(Event{Event: event}); err != nil {
				t.Fatal(err)
			}
		}
		for range refusalBurst + 7 {
			record(EventRefused)
		}
		if got := strings.Count(out.String(), "\n"); got != refusalBurst {
			t.Errorf("%d lines, want %d", got, refusalBurst)
		}
		record(EventBreak)
		if got := log.Recent(1)[0].Event; got != EventBreak {
			t.Errorf("the latest event is %q, want the break", got)
		}
		time.Sleep(2 * refusalInterval)
		log.out = &fullDisk{}
		_ = log.Record(Event{Event: EventRefused})
		log.out = &out
		record(EventRefused)
		if got := log.Recent(1)[0].LeftOut; got != 8 {
			t.Errorf("left_out = %d, want 8", got)
		}
		if got := len(log.Recent(1 << 20)); got != recentEvents {
			t.Errorf("it remembers %d events, want %d", got, recentEvents)
		}
	})
}

// TestRecent checks that all see the events of the locks that they administer, and no others.
func TestRecent(t *testing.T) {
	var policy strings.Builder
	policy.WriteString("[namespace.payments]\n[namespace.shop]\n")
	tokens := map[string]string{}
	for name, rights := range map[string]string{
		"payments": `verbs = ["admin", "break"]` + "\n" + `namespace = "payments"` + "\n" + `prefixes = [""]`,
		"all":      `verbs = ["admin", "break"]` + "\n" + `prefixes = [""]`,
		"deploy":   `verbs = ["admin"]` + "\n" + `prefixes = ["deploy/"]`,
		"reader":   `verbs = ["read"]` + "\n" + `prefixes = [""]`,
	} {
		token, line := NewToken()
		tokens[name] = token
		fmt.Fprintf(&policy, "[token.%s]\n%s\n%s\n", name, line, rights)
	}
	a := newTestAccess(t, policy.String())
	for _, e := range []Event{
		{Event: EventBreak, Who: "1", Namespace: "payments", Name: "deploy/a"},
		{Event: EventBreak, Who: "2", Namespace: "shop", Name: "deploy/a"},
		{Event: EventBreak, Who: "3", Name: "deploy/a"},
		{Event: EventRefused, Who: "4"},
		{Event: EventBreak, Who: "5", Namespace: "of an old policy", Name: "deploy/a"},
		{Event: EventBreak, Who: "6", Name: "payments/deploy/a"}, // by somebody who is outside
	} {
		if err := a.Access.audit.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"payments": "1", "all": "654321", "deploy": "3", "reader": ""} {
		got := ""
		for _, e := range a.Recent(a.admit(request(tokens[name])), 100) {
			got += e.Who
		}
		if got != want {
			t.Errorf("%s sees the events %q, want %q", name, got, want)
		}
	}
	if got := a.Recent(a.admit(request(tokens["all"])), 2); len(got) != 2 {
		t.Errorf("%d events, want the 2 that were asked for", len(got))
	}
	for name, token := range tokens { // what doctor finds is about the whole store
		p := a.admit(request(token))
		_, err := a.Begin(t.Context(), p, serve.Action{Verb: serve.VerbAdmin, Op: serve.OpDoctor})
		last := a.Access.audit.Recent(1)[0]
		if isRecorded := last.Op == "doctor" && last.Who == p.Name; (err == nil) != (name == "all") || isRecorded != (err != nil) {
			t.Errorf("doctor for %s: %v, and the last event is %+v", name, err, last)
		}
	}
}
