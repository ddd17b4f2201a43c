package metrics_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/metrics"
)

// resourcesOf returns the values of the label "resource".
func resourcesOf(s scrape) map[string]bool {
	found := map[string]bool{}
	for series := range s {
		if _, after, ok := strings.Cut(series, `resource="`); ok {
			value, _, _ := strings.Cut(after, `"`)
			found[value] = true
		}
	}
	return found
}

// TestMillionNames checks that the number of time series and their memory are
// bounded, however many names there are.
func TestMillionNames(t *testing.T) {
	const names, limit = 1_000_000, 50
	c := newCollector(t, metrics.Options{MaxResources: limit, Resource: func(name string) string { return name }})
	trace := c.Trace()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range names {
		e := snib.Event{Name: fmt.Sprintf("lock-%07d", i)}
		trace.WaitStarted(snib.WaitStartedEvent{Event: e})
		trace.WaitEnded(snib.WaitEndedEvent{Event: e})
		trace.Released(snib.ReleasedEvent{Event: e})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)

	got := read(t, c)
	resources := resourcesOf(got)
	if len(resources) != limit+1 || !resources["other"] {
		t.Errorf("%d names make %d resources (with %q: %v), want %d and %q", names, len(resources), "other",
			resources["other"], limit, "other")
	}
	const each = 70 // 3 histograms of at most 14 series, 12 of causes and reasons, and a few
	if len(got) > (limit+2)*each {
		t.Errorf("%d names make %d series, want at most %d", names, len(got), (limit+2)*each)
	}
	got.check(t, scrape{
		`distributed_lock_wait_seconds_count{resource="other"}`: names - limit,
		`distributed_lock_resource_overflows_total`:             names - limit,
	})
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 2<<20 {
		t.Errorf("%d names take %d bytes, want at most 2 MiB", names, more)
	}
}

// TestLabelsAreClean checks that a scrape succeeds whatever the class is.
func TestLabelsAreClean(t *testing.T) {
	tests := []struct{ name, class, want string }{
		{"Empty", "", "other"},
		{"Other", "other", "other"},
		{"NoUTF8", "a\xffb", "a\uFFFDb"},
		{"Long", strings.Repeat("x", 1000), strings.Repeat("x", 128)},
		{"CutInCharacter", strings.Repeat("x", 127) + "ж", strings.Repeat("x", 127) + "\uFFFD"},
		{"Quotes", "say \"hi\"\n", `say \`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCollector(t, metrics.Options{Resource: func(string) string { return tt.class }})
			c.Trace().WaitStarted(snib.WaitStartedEvent{Event: snib.Event{Name: "a"}})
			if got := resourcesOf(read(t, c)); len(got) != 1 || !got[tt.want] {
				t.Errorf("resources = %v, want %q", got, tt.want)
			}
		})
	}
}
