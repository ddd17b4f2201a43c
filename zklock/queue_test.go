package zklock

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

const someID = "541141a4-7c3d-47a1-9484-716030f424b0"

func TestParse(t *testing.T) {
	tests := []struct {
		name string // of a node
		want contender
		no   bool // the node takes no part
	}{
		{name: "_c_" + someID + "-lock-0000000007", want: contender{recipe: true, seq: 7}},
		{name: "_c_" + someID + "-__WRIT__0000000007", want: contender{recipe: true, seq: 7}},
		{name: "_c_" + someID + "-__READ__2147483647", want: contender{recipe: true, seq: math.MaxInt32, mode: modeShared}},
		{name: "_c_" + someID + "-lock--2147483648", want: contender{recipe: true, seq: math.MinInt32}},
		{name: "_c_" + someID + "-__READ__-2147483648", want: contender{recipe: true, seq: math.MinInt32, mode: modeShared}},
		{name: "_c_" + someID + "-lock--000000005", want: contender{recipe: true, seq: -5}}, // Java counts the sign as a digit
		{name: "_c_" + someID + "-slot3-0000000001", want: contender{recipe: true, seq: 1, mode: modeSlot, slots: 3}},
		{name: "_c_" + someID + "-slot12--2000000001", want: contender{recipe: true, seq: -2000000001, mode: modeSlot,
			slots: 12}},
		{name: "_k_" + someID + "-slot12-0000000001", want: contender{recipe: true, seq: 1, mode: modeSlot, slots: 12,
			kept: true}},
		// go-zookeeper
		{name: "_c_0123456789abcdef0123456789abcdef-lock-0000000009",
			want: contender{recipe: true, seq: 9}},
		{name: "87e83f711a5a446ca83b209ce2f88e4a__lock__0000000001", want: contender{seq: 1}}, // kazoo
		{name: "87e83f711a5a446ca83b209ce2f88e4a__rlock__0000000001", want: contender{seq: 1, mode: modeShared}},
		{name: "x-72057594037927936-0000000002", want: contender{seq: 2}}, // ZooKeeper's own recipe
		{name: "x-72057594037927936-1000000002", want: contender{seq: 1000000002}},
		{name: "lock-0000000003", want: contender{seq: 3}},
		{name: "-slot0-0000000003", want: contender{seq: 3}},
		{name: "locks", no: true},
		{name: "", no: true},
		{name: "000000001", no: true},
		{name: "lock-3000000000", no: true}, // not an int32
	}
	for _, tt := range tests {
		tt.want.node = tt.name
		got, ok := parse(tt.name)
		if ok == tt.no || ok && got != tt.want {
			t.Errorf("parse(%q) = %+v, %v; want %+v, %v", tt.name, got, ok, tt.want, !tt.no)
		}
	}
}

// TestParseOwn checks that we parse our own names correctly.
func TestParseOwn(t *testing.T) {
	for _, seq := range []string{"0000000000", "2147483647", "-2147483648", "-000000001"} {
		for _, readWrite := range []bool{false, true} {
			for _, req := range []driver.Request{{}, {Shared: true}, {Slots: 1}, {Slots: 1000000}} {
				c := config{curatorReadWrite: readWrite}
				got, ok := parse(nodePrefix + newID() + c.nodeSuffix(req) + seq)
				a := attempt{req: req}
				if want := a.asContender(); !ok || !got.recipe || got.mode != want.mode || got.slots != want.slots || got.kept {
					t.Errorf("%+v is read as %+v, %v; want %+v", req, got, ok, want)
				}
			}
		}
	}
}

// TestLine checks that the order is that of arrival, also after the counter has wrapped around.
func TestLine(t *testing.T) {
	for _, want := range [][]string{
		{"lock-2147483646", "__READ__2147483647", "lock--2147483648", "__WRIT__-2147483647"},
		{"lock--999999999", "lock--000000001", "lock-0000000000", "slot3-0000000010"},
	} {
		for i := range want { // in whatever order the server lists them
			names := slices.Concat([]string{"no number"}, want[i:], want[:i])
			var got []string
			for _, c := range parseQueue(names) {
				got = append(got, c.node)
			}
			if !slices.Equal(got, want) {
				t.Errorf("line of %q = %q, want %q", names, got, want)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	const w, r, s2, s3 = "lock-", "__READ__", "-slot2-", "-slot3-"
	tests := []struct {
		name  string
		line  []string // the last one is the contender under test
		grant bool
		watch int // index of the node; -1 for none
		all   bool
		kind  bool // the contender is of another kind
	}{
		{name: "First", line: []string{w}, grant: true, watch: -1},
		{name: "Second", line: []string{w, w}, watch: 0},
		{name: "OnlyThePredecessor", line: []string{w, w, w, w}, watch: 2},
		{name: "ReadersTogether", line: []string{r, r, r}, grant: true, watch: -1},
		{name: "WriterBehindReaders", line: []string{r, r, w}, watch: 1},
		{name: "ReaderBehindWriter", line: []string{w, r, r}, watch: 0},
		{name: "ReaderBehindLastWriter", line: []string{r, w, w, r, r}, watch: 2},
		{name: "Slot", line: []string{s3, s3, s3}, grant: true, watch: -1},
		{name: "SlotFirstWaiter", line: []string{s3, s3, s3, s3}, watch: -1, all: true},
		{name: "SlotSecondWaiter", line: []string{s3, s3, s3, s3, s3}, watch: 3},
		{name: "FewerSlots", line: []string{s3, s3, s3, s2}, watch: -1, all: true},
		{name: "MoreSlots", line: []string{s2, s3, s3}, watch: -1, all: true},
		{name: "FewerSlotsAhead", line: []string{s3, s3, s2, s3}, watch: 2},
		{name: "LockAmongSlots", line: []string{s3, w}, watch: -1, kind: true},
		{name: "SlotBehindLock", line: []string{w, s3}, watch: -1, kind: true},
		{name: "BehindWhoMayStillBeFirst", line: []string{s3, w, s3}, watch: 1},
		{name: "ReaderBehindSlot", line: []string{r, s3, r}, watch: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var names []string
			for i, mark := range tt.line {
				names = append(names, fmt.Sprintf("%s%010d", mark, i))
			}
			all := parseQueue(names)
			last := len(all) - 1
			want := verdict{granted: tt.grant, watchFolder: tt.all}
			if tt.watch >= 0 {
				want.watch = names[tt.watch]
			}
			got, err := judge(all[last], all[:last])
			if got != want || errors.Is(err, driver.ErrKind) != tt.kind || (err != nil) != tt.kind {
				t.Errorf("judge = %+v, %v; want %+v, kind conflict %v", got, err, want, tt.kind)
			}
		})
	}
}

// TestKeptAhead has a node ahead that MinHold keeps. When its time is over, only who is right
// behind it looks at the queue again, or who is next for a slot.
func TestKeptAhead(t *testing.T) {
	s, _ := newTestSession(t, time.Minute)
	lock, slot := contender{node: "kept", kept: true}, contender{node: "kept", kept: true, mode: modeSlot, slots: 1}
	kept := info{ID: "a", Kept: 30 * time.Second}.encode()
	if _, err := s.conn.Create("/kept", kept, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	a := &attempt{s: s, folder: "/", stat: zk.Stat{Ctime: time.Now().UnixMilli()}, createdAt: driver.Now()}
	for _, tt := range []struct {
		me    contender
		ahead []contender
		soon  bool
	}{
		{me: contender{}, ahead: []contender{lock}, soon: true},
		{me: contender{}, ahead: []contender{lock, {node: "first"}}},
		{me: contender{mode: modeSlot, slots: 1}, ahead: []contender{slot}, soon: true},
	} {
		st, err := a.judge(t.Context(), tt.me, tt.ahead)
		if soon := st.recheckAfter < time.Minute; err != nil || soon != tt.soon {
			t.Errorf("judge(%+v) behind %+v = %+v, %v; want that it looks again soon: %v", tt.me, tt.ahead, st, err, tt.soon)
		}
	}
}
