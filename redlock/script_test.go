package redlock

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A scriptServer is a real server on which only the scripts are run.
type scriptServer struct {
	t      testing.TB
	server *redistest.Node
	node   *node
	buf    scriptCall
}

// newScriptServer starts a server, and admits it if admitted is set.
func newScriptServer(t testing.TB, admitted bool) *scriptServer {
	t.Helper()
	server := redistest.Single(t)
	s := &scriptServer{t: t, server: server, node: &node{address: "a:1", cluster: "the cluster"}}
	s.connect()
	if admitted {
		s.wantAnswer("o", 'i')
	}
	return s
}

func (s *scriptServer) connect() {
	s.t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.server.Addr()}, DisableCache: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	s.node.client = client
}

// restart kills the server and starts it again, without memory and with a new run_id.
func (s *scriptServer) restart() {
	s.t.Helper()
	s.server.Kill()
	s.server.Restart()
	s.connect()
}

// parseCommands parses lines such as "a NONCE 1000 5 {json". A command is about the lock x, or
// the one named before a colon. A tilde stands for a space. A request that takes a lock has one
// token unless it says otherwise.
func parseCommands(lines ...string) []*command {
	var batch []*command
	for _, line := range lines {
		name := "x"
		if before, after, named := strings.Cut(line, ": "); named {
			name, line = before, after
		}
		fields := strings.Split(line, " ")
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "~", " ")
		}
		if fields[0] == "a" && len(fields) == 5 {
			fields = append(fields, "1", "")
		}
		l, cmd := lockOf(name), new(command)
		cmd.set(fields[0][0], &l, fields[1:]...)
		batch = append(batch, cmd)
	}
	return batch
}

// run makes one call with these commands and returns the answers.
func (s *scriptServer) run(lines ...string) []string {
	s.t.Helper()
	s.buf.write(s.node.cluster, s.node.address, parseCommands(lines...))
	answers, err := eval(s.node.client, &s.buf)
	if err != nil {
		s.t.Fatalf("%q: %v", lines, err)
	}
	return answers
}

// wantAnswer makes a call with one request about no lock, and checks the answer.
func (s *scriptServer) wantAnswer(answer string, code byte, args ...string) {
	s.t.Helper()
	cmd := new(command)
	cmd.set(code, noLock(), args...)
	s.buf.write(s.node.cluster, s.node.address, []*command{cmd})
	got, err := eval(s.node.client, &s.buf)
	if err != nil || len(got) != 1 || got[0] != answer {
		s.t.Fatalf("%c %q = %q, %v, want %q", code, args, got, err, answer)
	}
}

// one and two are nonces, whose tilde stands for a space; rest is the end of a holder's JSON.
const one, two, rest = "one~", "two~", `"id":"me"}`

func TestLuaScripts(t *testing.T) {
	livetest.LuaScripts(t, map[string]string{"hold": holdScript.Text(), "admin": adminScript.Text()})
}

// TestHoldScript lists, for each case, the calls, their requests and the answers. Counters are
// small because hints are. TestScriptAgainstModel compares what the model knows.
func TestHoldScript(t *testing.T) {
	held := func(nonce, number string) string {
		return "h 60000 " + nonce + " " + number + ` {"since":0,"id":"me"}`
	}
	tests := []struct {
		name  string
		calls [][]string // requests and answers in turn
	}{
		{"FreeOnlyOwn", [][]string{
			{"a one~ 60000 7 " + rest, "g 7"},
			{"f two~ 0", "n", "f on~ 0", "n", "f ne~ 0", "n"},
			{"a two~ 60000 9 " + rest, held("one", "7")},
			{"f one~ 0", "o", "f one~ 0", "n"},
		}},
		{"Raise", [][]string{
			{"a one~ 60000 7 " + rest, "g 7"},
			{"r one~ 20", "o", "r one~ 20", "o"},
			{"r one~ 19", "n", "r two~ 30", "n"}, // never back, and never for another nonce
			{"a one~ 60000 1 " + rest, "g 20"},   // the value was raised with the counter
			{"f one~ 0", "o", "r one~ 40", "n", "a two~ 60000 1 " + rest, "g 22"},
		}},
		{"Extend", [][]string{
			{"a one~ 60000 7 " + rest, "g 7"},
			{"e one~ 60000 7 " + rest, "o", "e two~ 60000 7 " + rest, "n"},
			{"f one~ 0", "o", "e one~ 60000 7 " + rest, "n"}, // what was freed is not taken again
		}},
		{"ExtendWithoutToken", [][]string{
			{"e one~ 60000 0 ", "n"}, // it takes nothing that is free
			{"a one~ 60000 7 " + rest, "g 7", "e one~ 1000 0 ", "o", "e two~ 1000 0 ", "n"},
			{"e one~ 1000 7 " + rest, "o", "a one~ 1000 7 " + rest, "g 7"},
			{"a two~ 60000 9 " + rest, held("one", "7")}, // neither the token nor the expiry was changed
		}},
		{"Holder", [][]string{
			{`h one~ "id":"me","label":"early"}`, "n"},
			{"a one~ 60000 7 " + rest, "g 7", `h one~ "id":"me","label":"50~%"}`, "o"},
			{`h two~ "id":"you"}`, "n", "a two~ 60000 9 " + rest, `h 60000 one 7 {"since":0,"id":"me","label":"50~%"}`},
			{"e one~ 60000 7 " + rest, "o", "a two~ 60000 9 " + rest, `h 60000 one 7 {"since":0,"id":"me","label":"50~%"}`},
			{"f one~ 60000", "o", `h one~ "id":"me"}`, "n"},
		}},
		{"Kept", [][]string{
			{"a one~ 60000 7 " + rest, "g 7", "f one~ 60000", "o"},
			{"e one~ 60000 7 " + rest, "n", "f one~ 0", "n"},
			{"a two~ 60000 1 " + rest, held("kept:one", "7")},
			{"f kept:one~ 0", "o", "a two~ 60000 1 " + rest, "g 10"},
		}},
		{"Stranger", [][]string{
			{"foreign: a one~ 60000 7 " + rest, "h -1 a~value"},
			{"foreign: f b~ 0", "n", "foreign: x a 0", "n", "foreign: x a~value 0", "o"},
			{"foreign: a one~ 60000 1 " + rest, "g 2"}, // the counter was raised
		}},
		{"Alien", [][]string{
			// Requests for other locks are served.
			{"list: a one~ 60000 7 " + rest, "k list", "x: a one~ 60000 7 " + rest, "g 7"},
			{"list: f one~ 0", "n"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newScriptServer(t, true)
			b.server.Must("SET", "foreign", "a value")
			b.server.Must("RPUSH", "list", "a")
			for _, c := range tt.calls {
				var lines, want []string
				for i := 0; i < len(c); i += 2 {
					lines, want = append(lines, c[i]), append(want, c[i+1])
				}
				for i, got := range b.run(lines...) {
					if got, want := withoutTime(got), strings.ReplaceAll(want[i], "~", " "); got != want {
						t.Errorf("%q = %q, want %q", lines[i], got, want)
					}
				}
			}
		})
	}
}

// withoutTime replaces the parts of an answer that depend on the time.
func withoutTime(answer string) string {
	if before, after, ok := strings.Cut(answer, `"since":`); ok {
		_, after, _ = strings.Cut(after, ",")
		answer = before + `"since":0,` + after
	}
	if after, ok := strings.CutPrefix(answer, "h "); ok {
		left, value, _ := strings.Cut(after, " ")
		if ms, err := strconv.Atoi(left); err == nil && ms > 50000 && ms <= 60000 {
			answer = "h 60000 " + value
		}
	}
	return answer
}

// A hint from the far future raises the counter to at most a minute ahead. Otherwise tokens
// would lose the clock as their second defence.
func TestHintIsClamped(t *testing.T) {
	b := newScriptServer(t, true)
	before := time.Now()
	answer := b.run("a one~ 1000 " + strconv.FormatInt(before.Add(24*time.Hour).UnixMicro(), 10) + " " + rest)[0]
	got, err := strconv.ParseInt(strings.TrimPrefix(answer, "g "), 10, 64)
	if least, most := before.Add(50*time.Second), time.Now().Add(70*time.Second); err != nil || got < least.UnixMicro() ||
		got > most.UnixMicro() {
		t.Errorf("a hint of tomorrow = %q, want %d to %d", answer, least.UnixMicro(), most.UnixMicro())
	}
}

// A node that belongs to another cluster, or is known by another address, says so.
func TestScriptOfOthers(t *testing.T) {
	b := newScriptServer(t, true)
	for _, other := range []struct{ address, cluster string }{{"a:2", "the cluster"}, {"a:1", "another"}} {
		c := *b
		c.node = &node{address: other.address, cluster: other.cluster, client: b.node.client}
		for _, got := range c.run("a one~ 60000 7 "+rest, "e one~ 60000 7 "+rest) {
			if got != "m a:1 the cluster" {
				t.Errorf("as %s of %q: %q, want m with what the node knows", other.address, other.cluster, got)
			}
		}
		c.wantAnswer("n", 'i')
		c.wantAnswer("n", 'j', "run", "mark", "0", "")
	}
}

// requestStanding returns the node's standing.
func (s *scriptServer) requestStanding(code byte, args ...string) (got standing) {
	s.t.Helper()
	cmd := new(command)
	cmd.set(code, noLock(), args...)
	s.buf.write(s.node.cluster, s.node.address, []*command{cmd})
	answer, err := eval(s.node.client, &s.buf)
	if err == nil {
		err = json.Unmarshal([]byte(answer[0]), &got)
	}
	if err != nil {
		s.t.Fatalf("%c = %q, %v", code, answer, err)
	}
	return got
}

// No failure passes a key to another attempt without a greater counter. A node that can't raise
// the counter grants nothing.
func TestNoGrantWithoutCounter(t *testing.T) {
	t.Parallel()
	_, field := stripeOf("x")
	for name, fail := range map[string]func(*redistest.Node){
		"NoNumber": func(n *redistest.Node) { n.Must("HSET", metaKey, field, "no number") },
		"NoMemory": func(n *redistest.Node) { n.Must("CONFIG", "SET", "maxmemory", "1") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newScriptServer(t, true)
			fail(b.server)
			if got := b.run("a one~ 60000 7 " + rest)[0]; !strings.HasPrefix(got, "x ") {
				t.Errorf("a grant whose counter can't be raised = %q, want an error", got)
			}
			if got := b.server.Must("EXISTS", "x"); got != int64(0) {
				t.Error("the key is there, although the counter was not raised")
			}
		})
	}
}

// A node that is out of memory says so for each request that needs memory, and serves
// the others. A release with MinHold is one of these: it shortens the lease.
func TestWithoutMemory(t *testing.T) {
	b := newScriptServer(t, true)
	b.run("a one~ 1000 7 "+rest, "y: a one~ 1000 7 "+rest)
	b.server.Must("CONFIG", "SET", "maxmemory", "1")
	for request, want := range map[string]string{
		"z: a two~ 60000 7 " + rest: "x", "y: f one~ 60000": "o", "e one~ 60000 7 " + rest: "o",
	} {
		got := b.run(request, "w: f one~ 0")
		if word, why, _ := strings.Cut(got[0], " "); word != want || strings.Contains(why, "OOM") != (want == "x") ||
			got[1] != "n" {
			t.Errorf("%q and a request that asks for nothing = %q, want %q, for want of memory, and n", request, got, want)
		}
	}
	if left, _ := b.server.Must("PTTL", "x").(int64); left < 50000 {
		t.Errorf("the extended key lasts %d ms, want 60000", left)
	}
	y, _ := b.server.Must("GET", "y").(string)
	left, _ := b.server.Must("PTTL", "y").(int64)
	if z := b.server.Must("EXISTS", "z"); !strings.HasPrefix(y, "kept:one ") || left < 50000 || z != int64(0) {
		t.Errorf("y is %q for %d ms, and z there %v times: want kept for 60000, and 0", y, left, z)
	}
	// What frees a key is done, although the counter can't be raised; what takes it then is not.
	got := b.run("y: f kept:one~ 0", "y: a two~ 60000 7 "+rest)
	if got[0] != "o" || !strings.HasPrefix(got[1], "x ") || b.server.Must("EXISTS", "y") != int64(0) {
		t.Errorf("freed and taken without memory = %q, want o and x", got)
	}
}

// An extension that has to write another token extends the key in any case, also beside
// requests that need memory.
func TestExtensionWithNumberWithoutMemory(t *testing.T) {
	b := newScriptServer(t, true)
	b.run("a one~ 1000 7 " + rest)
	b.server.Must("CONFIG", "SET", "maxmemory", "1")
	got := b.run("e one~ 60000 9 "+rest, "z: a two~ 60000 7 "+rest)
	left, _ := b.server.Must("PTTL", "x").(int64)
	if got[0] != "o" || left < 50000 {
		t.Errorf("the answer is %q, and the key lasts %d ms, want o and 60000", got[0], left)
	}
}

// TestWireFormat fixes the format on which other clients rely: version 1.
func TestWireFormat(t *testing.T) {
	b := newScriptServer(t, true)
	b.run("a one~ 60000 7 "+rest+" 1 me", "a two~ 60000 8 {} 1 you")
	value, _ := b.server.Must("GET", "x").(string)
	if got, want := withoutTime(value), `one 7 {"since":0,"id":"me"}`; got != want {
		t.Errorf("the lock's key = %q, want %q", got, want)
	}
	meta := map[string]string{}
	pairs := b.server.Must("HGETALL", metaKey).([]any)
	for i := 0; i < len(pairs); i += 2 {
		meta[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	run := meta["admitted"]
	if len(run) != 40 || meta["cluster"] != "the cluster" || meta["self"] != "a:1" || meta["c1667"] != "7" ||
		len(meta) != 4 {
		t.Errorf("%s = %v, want admitted, cluster, self and the counter c1667 = 7", metaKey, meta)
	}
	waits, _ := b.server.Must("HGET", "snib.rw:x", "you").(string)
	if len(waits) < 32 || waits[:16] != waits[16:32] || waits[32:] != "{{}" {
		t.Errorf("the waiter is %q, want two times of 16 digits and its description of itself", waits)
	}
	vectors := []struct {
		name, key, waiting, field string
	}{
		{"x", "x", "snib.rw:x", "c1667"},
		{"invoices/2026-11", "invoices/2026-11", "snib.rw:invoices/2026-11", "c2314"},
		{"Größe ☃ 🔒", "Größe ☃ 🔒", "snib.rw:Größe ☃ 🔒", "c262"},
		{"snib.redlock", "snib.l:snib.redlock", "snib.rw:snib.l:snib.redlock", "c1245"},
		{"snib.rw:x", "snib.l:snib.rw:x", "snib.rw:snib.l:snib.rw:x", "c3712"},
	}
	for _, v := range vectors {
		if l := lockOf(v.name); l.key != v.key || l.waitersKey != v.waiting || l.counterField != v.field {
			t.Errorf("%q: %q, %q, %s, want %q, %q, %s", v.name, l.key, l.waitersKey, l.counterField, v.key, v.waiting, v.field)
		}
	}
}

// A release is published to the waiters, with their number.
func TestScriptTells(t *testing.T) {
	b := newScriptServer(t, true)
	b.run("a one~ 60000 7 "+rest, "a two~ 60000 7 {} 1 two", "a three~ 60000 7 {} 1 three")
	conn, release := b.node.client.Dedicate()
	defer release()
	heard := make(chan string, 2)
	subscribed := make(chan struct{})
	conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { heard <- m.Channel + " " + m.Message },
		OnSubscription: func(rueidis.PubSubSubscription) { close(subscribed) },
	})
	if err := conn.Do(context.Background(), conn.B().Subscribe().Channel("snib.rw:x").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	<-subscribed
	b.run("f one~ 0")
	select {
	case got := <-heard:
		if got != "snib.rw:x 2" {
			t.Errorf("heard %q, want the channel and 2", got)
		}
	case <-time.After(livetest.Patience):
		t.Error("nobody was told of the release")
	}
}

// Names map to keys one to one, and back.
func FuzzKeys(f *testing.F) {
	for _, name := range []string{"x", "snib.", "snib.l:x", "snib.rw:x", "snib.redlock", "snib.rw:snib.l:x", " ", "{x}"} {
		f.Add(name, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		for _, key := range []string{keyOf(a), waitersKeyOf(a)} {
			if name, ok := nameOf(key); !ok || name != a || key == metaKey {
				t.Fatalf("%q has the key %q, which is that of %q, %v", a, key, name, ok)
			}
		}
		keys := map[string]bool{keyOf(a): true, waitersKeyOf(a): true, keyOf(b): true, waitersKeyOf(b): true}
		if want := 4; a != b && len(keys) != want {
			t.Fatalf("%q and %q share a key: %v", a, b, keys)
		}
	})
}

// A node that restarted, or is blank, neither grants nor extends nor raises, but it frees.
func TestScriptWhileNotAdmitted(t *testing.T) {
	b := newScriptServer(t, true)
	b.run("a one~ 60000 7 " + rest)
	meta := b.server.Must("HGETALL", metaKey).([]any)
	held := b.server.Must("GET", "x")
	b.restart()
	for _, memory := range []string{"none", "all"} {
		if memory == "all" { // as if loaded from a file
			b.server.Must(append([]any{"HSET", metaKey}, meta...)...)
			b.server.Must("SET", "x", held)
		}
		for i, got := range b.run("a two~ 60000 7 "+rest, "y: a two~ 60000 7 "+rest, "e one~ 60000 7 "+rest, "r one~ 8") {
			if want := map[string]string{"none": "u blank", "all": "u"}[memory]; got != want {
				t.Errorf("with memory of %s, request %d of a node that restarted = %q, want %q", memory, i, got, want)
			}
		}
	}
	if got := b.run("f two~ 0", "f one~ 0"); got[0] != "u" || got[1] != "o" {
		t.Errorf("free on a node that restarted = %q, want u and o", got)
	}
}

// A node is admitted only under the run_id and the mark that were waited for, and no
// counter goes back.
func TestScriptAdmits(t *testing.T) {
	b := newScriptServer(t, true)
	b.restart()
	s := b.requestStanding('m', "first")
	if s.Mark != "first" || s.Admitted == s.Run || s.Run == "" {
		t.Fatalf("standing of a marked node = %+v", s)
	}
	if again := b.requestStanding('m', "second"); again.Mark != "first" {
		t.Errorf("marked again, the mark is %q: it would be waited for without end", again.Mark)
	}
	b.wantAnswer("n", 'j', s.Run, "second", "0", "")
	b.wantAnswer("n", 'j', "another run", "first", "0", "")
	stripe, field := stripeOf("x")
	b.server.Must("HSET", metaKey, field, 100)
	b.wantAnswer("o", 'j', s.Run, "first", "50", fmt.Sprintf("%d 99 %d 77 ", stripe, (stripe+1)%stripes))
	for name, want := range map[string]string{field: "100", counterFields()[(stripe+1)%stripes]: "77",
		counterFields()[(stripe+2)%stripes]: "50"} {
		if got := b.server.Must("HGET", metaKey, name); got != want {
			t.Errorf("counter %s after the admission = %v, want %s", name, got, want)
		}
	}
	if after := b.requestStanding('s'); after.Admitted != after.Run || after.Mark != "" || after.Self != "a:1" ||
		after.Cluster != "the cluster" {
		t.Errorf("standing after the admission = %+v", after)
	}
	b.wantAnswer("n", 'j', s.Run, "first", "0", "")

	b.restart()
	s = b.requestStanding('m', "third")
	for _, times := range [][]string{{"second", "0:1 "}, {"third", "0:7 12:9 "}, {"third", "0:1 2:5 12:1 1:3 "}} {
		b.requestStanding('w', times...)
	}
	if got, want := b.requestStanding('s'), "0:7 12:9 2:5 1:3 "; got.Since != want || got.Now < s.Now {
		t.Errorf("the standing is %+v, want the first time of each node since the mark, %q", got, want)
	}

	b.restart()
	if s := b.requestStanding('s'); s.Mark != "" || s.Admitted != "" {
		t.Errorf("standing after another restart = %+v, want neither mark nor admission", s)
	}
}

// A mark of an earlier run does not count: the node has restarted since.
func TestMarkOfAnotherRun(t *testing.T) {
	b := newScriptServer(t, false)
	b.server.Must("HSET", metaKey, "mark", "an earlier run first")
	if s := b.requestStanding('s'); s.Mark != "" {
		t.Errorf("the mark is %q, want none", s.Mark)
	}
	if s := b.requestStanding('m', "second"); s.Mark != "second" {
		t.Errorf("the mark is %q, want the new one", s.Mark)
	}
}
