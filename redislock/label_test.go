package redislock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestLabelInGrant changes labels that look like a part of a grant, in a grant whose id does,
// too. Nothing else of the grant changes: neither its text nor its end.
func TestLabelInGrant(t *testing.T) {
	t.Parallel()
	const looksAlike = `",\","label":"x"}{ \ % %1 ☕`
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, first := range []string{"", "at first", looksAlike} {
		req := request("job", "owner "+looksAlike, time.Minute)
		req.Holder = driver.Holder{Host: looksAlike, PID: 7, Label: first}
		l := take(t, d, req)
		read := func() (before string, left int64) {
			record, _ := node.Must("GET", "job").(string)
			before, _, _ = strings.Cut(strings.TrimSuffix(record, "}"), `,"label":"`)
			left, _ = node.Must("PTTL", "job").(int64)
			return before, left
		}
		rest, left := read()
		for _, label := range []string{looksAlike, "", "at last", looksAlike} {
			want := req.Holder
			want.Label = label
			if err := l.SetHolder(t.Context(), want); err != nil {
				t.Fatalf("SetHolder(%q) = %v", label, err)
			}
			st, err := d.Status(t.Context(), "job")
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("Status after SetHolder(%q) = %+v, %v", label, st, err)
			}
			if h := st.Holders[0]; h.ID != l.ID() || h.Holder != want || h.Token != l.Grant().Token {
				t.Errorf("after SetHolder(%q), the holder is %+v, want %q, %+v", label, h, l.ID(), want)
			}
			if got, now := read(); got != rest || now <= 0 || now > left {
				t.Errorf("after SetHolder(%q), the grant begins with %q and lasts %d ms; want %q, and at most %d ms", label, got,
					now, rest, left)
			}
		}
		free(t, l)
	}
}
