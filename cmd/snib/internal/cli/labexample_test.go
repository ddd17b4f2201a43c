package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/lab/arena"
	"github.com/sniblock/snib/lab/peers"
)

// TestLabExample checks that the run in docs/lab-example is one of today's lab: verdicts have the
// same fields, controls are convicted and snib is not, and nothing on the machine is named that
// made it. "make lab TIME=20s LABOUT=docs/lab-example" makes it anew.
func TestLabExample(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "docs", "lab-example")
	text, err := os.ReadFile(filepath.Join(dir, "verdicts.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	var run labJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&run); err != nil {
		t.Fatal(err)
	}
	if run.Void {
		t.Error("the run is void")
	}
	checkKnown(t, run.Verdicts)
	for _, v := range run.Verdicts {
		switch {
		case v.Control && v.Verdict != v.Expected, !v.Control && v.Library == "" && (v.Convicted || v.Verdict == ""):
			t.Errorf("%s: the verdict is %q: %s", v.Contestant, v.Verdict, v.Error)
		case !strings.Contains(string(page), ">"+v.Contestant+"<"):
			t.Errorf("the page does not have %s", v.Contestant)
		}
	}
	for _, file := range [][]byte{text, page} {
		if found := regexp.MustCompile(`/(tmp|root|home|work)/[^"<]*`).Find(file); found != nil {
			t.Errorf("the run names %s", found)
		}
	}
}

// checkKnown checks that today's lab knows all that the run has judged, and that the run has at
// least twelve libraries of others, on four stores.
func checkKnown(t *testing.T, verdicts []verdictJSON) {
	t.Helper()
	name := func(c arena.Contestant) string { return c.Name }
	known := slices.Concat(convert(museum(), name), convert(labContestants(), name), convert(peers.All(), func(p peers.Peer) string { return p.Name }))
	foreign, stores := 0, make(map[arena.StoreKind]bool)
	for _, v := range verdicts {
		if !slices.Contains(known, v.Contestant) {
			t.Errorf("the lab does not know %s", v.Contestant)
		}
		if v.Library != "" && v.Verdict != "" {
			foreign++
			stores[peers.Named(v.Contestant)[0].Store] = true
		}
	}
	if foreign < 12 || len(stores) < 4 {
		t.Errorf("the run has %d libraries of others, on %d stores", foreign, len(stores))
	}
}
