package redlock

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
	"github.com/sniblock/snib/redlock/internal/quorumtest"
)

// TestScriptAgainstModel sends the same random batches to the script in a real server and to
// the model of the simulation. The results of the simulation hold for the script only as far as
// their answers agree.
func TestScriptAgainstModel(t *testing.T) {
	const seed, calls = 1, 2500 // of 1 to 6 requests each
	defer func() {
		if t.Failed() {
			t.Logf("the seed is %d", seed)
		}
	}()
	m := newTwin(t, rand.New(rand.NewPCG(seed, 0)))
	for i := range calls {
		switch {
		case i%100 == 99:
			m.restart()
		case m.rand.IntN(12) == 0:
			m.advance(time.Duration(1+m.rand.IntN(6)) * 10 * time.Minute)
		case m.rand.IntN(8) == 0, !m.model.Admitted() && m.rand.IntN(2) == 0:
			m.compareAdmission()
		default:
			m.compareLocks()
		}
		if t.Failed() {
			t.Fatalf("in call %d, after:\n%s", i, strings.Join(m.log[max(0, len(m.log)-25):], "\n"))
		}
	}
	t.Logf("%d requests about locks, of which %d were done, and %d about admissions", m.requests, m.done, m.admissions)
	if m.done < m.requests/10 || m.done > m.requests*9/10 || m.admissions < calls/20 {
		t.Error("too few requests were done, too few were refused, or too few were about admissions")
	}
}

// A twin is a server with its model. TTLs are odd multiples of five minutes, and time passes in
// steps of ten minutes. To make time pass on the server, the twin shortens the TTLs of its
// keys. So the outcome depends on minutes, and not on how long the test takes.
type twin struct {
	*scriptServer
	rand  *rand.Rand
	model *quorumtest.Node
	now   time.Duration // the model's time
	names []string
	marks int
	last  [2]uint64 // the greatest counters granted, by stripe
	log   []string

	requests, done, admissions int
}

func newTwin(t *testing.T, r *rand.Rand) *twin {
	m := &twin{scriptServer: newScriptServer(t, true), rand: r, now: 365 * 24 * time.Hour, names: []string{"n0", "n1"}}
	// Lock 2 shares the counter of lock 0, and lock 3 that of lock 1, as in the model.
	for i := 2; len(m.names) < 4; i++ {
		name := "n" + strconv.Itoa(i)
		if want, _ := stripeOf(m.names[len(m.names)-2]); lockOf(name).stripe == want {
			m.names = append(m.names, name)
		}
	}
	m.model = quorumtest.NewNode(m.requestStanding('s').Run, len(m.names), 2, "")
	m.model.Init()
	return m
}

func (m *twin) notef(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// compareLocks makes one call of random requests about locks.
func (m *twin) compareLocks() {
	var lines []string
	var requests []quorumtest.Request
	for range 1 + m.rand.IntN(6) {
		line, r := m.request()
		lines, requests = append(lines, line), append(requests, r)
	}
	for i, got := range m.run(lines...) {
		want := m.model.Do(requests[i], m.now)
		m.notef("%-60s %-40s %s", lines[i], got, want)
		m.last[requests[i].Name%2] = max(m.last[requests[i].Name%2], want.Counter)
		m.requests++
		if want.OK {
			m.done++
		}
		if word, rest, _ := strings.Cut(got, " "); !agrees(word, rest, want) {
			m.t.Errorf("request %d, %q = %q, and the model says: %s", i, lines[i], got, want)
		}
	}
}

// agrees reports whether an answer of the script is that of the model.
func agrees(word, rest string, want quorumtest.Answer) bool {
	switch word {
	case "g":
		return want.OK && rest == strconv.FormatUint(want.Counter, 10)
	case "o":
		return want.OK && want.Counter == 0
	case "u":
		return !want.OK
	case "h", "n":
		return !want.OK && !want.Unadmitted
	}
	return false
}

// request makes a random request, for the script and for the model.
func (m *twin) request() (line string, r quorumtest.Request) {
	lock, nonce := m.rand.IntN(len(m.names)), 1+m.rand.Uint64N(3)
	ttl := time.Duration(1+2*m.rand.IntN(12)) * 5 * time.Minute
	number := max(5, m.last[lock%2]) - 4 + m.rand.Uint64N(9) // close to the counter
	r = quorumtest.Request{Name: lock, Nonce: nonce, TTL: ttl, Token: number, Hint: number, Tokens: 1}
	begin := func(code string) string { return fmt.Sprintf("%s: %s nonce%d~ ", m.names[lock], code, nonce) }
	switch m.rand.IntN(11) {
	case 0, 1, 2:
		r.Op = quorumtest.Ask
		r.Tokens = 1 + m.rand.Uint64N(3)
		return fmt.Sprintf("%s%s %d %s %d ", begin("a"), rediskit.Millis(ttl), number, rest, r.Tokens), r
	case 3, 4:
		r.Op = quorumtest.Raise
		return begin("r") + strconv.FormatUint(number, 10), r
	case 5, 6, 7:
		r.Op = quorumtest.Extend
		return fmt.Sprintf("%s%s %d %s", begin("e"), rediskit.Millis(ttl), number, rest), r
	case 8:
		r.Op = quorumtest.Describe
		return begin("h") + rest, r
	default:
		r.Op = quorumtest.Free
		if m.rand.IntN(4) > 0 {
			r.TTL = 0
		}
		return begin("f") + rediskit.Millis(r.TTL), r
	}
}

// advance lets time pass.
func (m *twin) advance(d time.Duration) {
	m.notef("%v pass", d)
	m.now += d
	for _, name := range m.names {
		switch left, _ := m.server.Must("PTTL", name).(int64); {
		case left == -1:
			m.t.Errorf("the key %q has no expiry", name)
		case left >= 0 && left <= d.Milliseconds():
			m.server.Must("DEL", name)
		case left >= 0:
			m.server.Must("PEXPIRE", name, left-d.Milliseconds())
		}
	}
}

// restart restarts the server without memory.
func (m *twin) restart() {
	m.scriptServer.restart()
	run := m.requestStanding('s').Run
	m.notef("restart as %s", run)
	m.model = quorumtest.NewNode(run, len(m.names), 2, "")
	m.last = [2]uint64{}
}

// compareAdmission makes one call about the admission of the node.
func (m *twin) compareAdmission() {
	m.admissions++
	mark := "m" + strconv.Itoa(m.marks)
	s := m.requestStanding('s')
	m.compareStanding(s, m.model.Do(quorumtest.Request{Op: quorumtest.Look}, m.now).Standing)
	switch m.rand.IntN(3) {
	case 0:
		m.marks++
		mark = "m" + strconv.Itoa(m.marks)
		m.model.Do(quorumtest.Request{Op: quorumtest.Mark, Mark: mark}, m.now)
		m.compareStanding(m.requestStanding('m', mark), m.model.Do(quorumtest.Request{Op: quorumtest.Look}, m.now).Standing)
	case 1:
		m.compareCounters()
	default:
		if m.rand.IntN(4) > 0 {
			mark = s.Mark
		}
		c := make(quorum.Counters, stripes)
		read := quorum.Counters{m.rand.Uint64N(2*m.last[0] + 1), m.rand.Uint64N(m.last[1] + 1)}
		for i, n := range read {
			c[lockOf(m.names[i]).stripe] = n
		}
		want := m.model.Do(quorumtest.Request{Op: quorumtest.Admit, Run: s.Run, Mark: mark, Counters: read}, m.now)
		m.notef("admit under %s with %v: %s", mark, read, want)
		m.wantAnswer(map[bool]string{true: "o", false: "n"}[want.OK], 'j', s.Run, mark, "0", formatCounters(c))
		m.compareCounters()
	}
}

// compareStanding compares the standing of the server with that of the model.
func (m *twin) compareStanding(s standing, want quorum.Standing) {
	m.notef("look: %+v", want)
	if got := (quorum.Standing{Run: s.Run, Admitted: s.Admitted, Mark: s.Mark}); got != want {
		m.t.Errorf("the standing of the node is %+v, and of the model %+v", got, want)
	}
}

// compareCounters compares all counters.
func (m *twin) compareCounters() {
	m.t.Helper()
	cmd := new(command)
	cmd.set('c', noLock())
	m.buf.write(m.node.cluster, m.node.address, []*command{cmd})
	answers, err := eval(m.node.client, &m.buf)
	if err != nil {
		m.t.Fatal(err)
	}
	admitted, got, err := parseCounters(answers[0])
	want := m.model.Do(quorumtest.Request{Op: quorumtest.Read}, m.now)
	if err != nil || admitted != want.OK {
		m.t.Errorf("counters %q, %v, and the model is admitted: %v", answers[0], err, want.OK)
		return
	}
	for i, n := range got {
		model := uint64(0)
		switch i {
		case lockOf(m.names[0]).stripe:
			model = want.Counters[0]
		case lockOf(m.names[1]).stripe:
			model = want.Counters[1]
		}
		if n != model {
			m.t.Errorf("counter %d is %d, and in the model %d", i, n, model)
		}
	}
}
