package redlock

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

const (
	// checkInterval is how often an agent checks a node that is not admitted and waits for
	// something other than time.
	checkInterval = 250 * time.Millisecond

	// probeInterval is how long a call must go unanswered before the agent checks whether the
	// server hangs or only the connection is dead. It is also the time between two such checks, and
	// before another try after an error.
	probeInterval = 3 * time.Second

	// maxSpread is how much later than others a client may go on with an admission.
	maxSpread = 2 * time.Second
)

// An agent looks after a node in the background. It admits the node after a restart, see
// [quorum.Admission], and replaces dead connections. Each driver has its own agents, one for each
// node; agents do not know of one another.
type agent struct {
	d         *Driver
	node      *node
	admission quorum.Admission
}

// run is the agent's goroutine. It sleeps while the node is well.
func (g *agent) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-g.node.toCheck:
		case <-timer.C:
		case <-g.d.life.Done():
			return
		}
		if pause := g.checkNode(); pause > 0 {
			timer.Reset(pause)
		}
	}
}

// checkNode takes the next steps for the node, and returns when to check it again, or 0 if it is
// well. A step under way is not given up when the driver is closed: see [Driver.Close].
func (g *agent) checkNode() (pause time.Duration) {
	n := g.node
	n.mu.Lock()
	suspected, busy := n.suspected, !n.busySince.IsZero()
	n.mu.Unlock()
	if suspected {
		next, admitted, err := g.d.admit(g.d.sendCtx, &g.admission, n.index, 0)
		// Other clients wait for the same moment. One of them is enough.
		if pause = next + rand.N(min(next/16, maxSpread)+1); err != nil {
			pause = probeInterval
		}
		n.mu.Lock()
		n.suspected = !admitted
		n.mu.Unlock()
	}
	if busy { // perhaps for long: a call got no answer in time
		g.probe()
		pause = min(cmp.Or(pause, probeInterval), probeInterval)
	}
	return pause
}

// probe closes a connection on which a call has gone unanswered for long, if the server answers
// on another connection.
func (g *agent) probe() {
	n := g.node
	if !n.hungFor(probeInterval) {
		return
	}
	ctx, cancel := context.WithTimeout(g.d.life.Context(), g.d.conf.timeout)
	defer cancel()
	client, err := n.dial(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	if client.Do(ctx, client.B().Ping().Build()).Error() == nil && n.hungFor(probeInterval) {
		n.disconnect(errOverdue)
	}
}

// A standing is a node's own state.
type standing struct {
	Run      string `json:"run"`
	Admitted string `json:"admitted"`
	Mark     string `json:"mark"`
	Cluster  string `json:"cluster"`
	Self     string `json:"self"`
	Since    string `json:"since"` // "NODE:TIME …": the nodes' clocks after the node was marked
	Now      string `json:"now"`   // the node's own clock
}

// admit takes the next step towards the admission of a node, after asking for its standing, and
// returns how long to wait before the step after it. Counters that no majority knows any more go on
// from the floor that an operator gave, or from the present time if it is 0.
func (d *Driver) admit(
	ctx context.Context, a *quorum.Admission, i int, floor uint64,
) (next time.Duration, admitted bool, err error) {
	s, err := d.requestStanding(ctx, i, codeShowNode)
	for tries := 0; err == nil && tries < 2; tries++ {
		now, others := quorum.Standing{Run: s.Run, Admitted: s.Admitted, Mark: s.Mark}, d.params.Reading(i, 0)
		if s.Admitted != s.Run && s.Mark != "" {
			now.Waited = d.readClocks(ctx, i, s, &others)
		}
		move, wait := a.Look(now, driver.Now())
		switch move {
		case quorum.None:
			return 0, true, nil
		case quorum.Wait:
			return wait, false, nil
		case quorum.Read:
			if !others.Complete() && !others.MajorityLost() { // all counters would be read in vain
				return probeInterval, false, nil
			}
			return d.readCountersAndAdmit(ctx, a, i, floor)
		case quorum.Mark:
			s, err = d.requestStanding(ctx, i, codeMark, cryptorand.Text())
		}
	}
	return checkInterval, false, err
}

// readClocks returns how long a node has been marked by the clocks of a majority of the nodes. It
// tells the node what those show of which the node does not know yet, and others which of them are
// admitted.
func (d *Driver) readClocks(ctx context.Context, i int, s standing, others *quorum.Reading) (waited time.Duration) {
	since, now := parseClocks(s.Since), quorum.Clocks{}
	var unknown []byte
	admitted := func(r reply) bool { // a majority of these is waited for
		var other standing
		return json.Unmarshal([]byte(r.text), &other) == nil && other.Admitted != "" && other.Admitted == other.Run
	}
	for node, r := range d.pollMost(ctx, d.readTimeout(), codeShowNode, noLock(), admitted) {
		var other standing
		if r.err != nil || json.Unmarshal([]byte(r.text), &other) != nil {
			continue
		}
		others.Answer(node, other.Admitted == other.Run, nil)
		now[node], _ = strconv.ParseUint(other.Now, 10, 64)
		if since[node] == 0 && now[node] != 0 {
			unknown = fmt.Appendf(unknown, "%d:%d ", node, now[node])
		}
	}
	if unknown != nil {
		// If it fails, the wait counts from a later time.
		_, _ = d.sendOne(ctx, i, codeSaveTimes, s.Mark, string(unknown))
	}
	return d.params.Waited(since, now)
}

// parseClocks parses the times that a node has stored.
func parseClocks(text string) (c quorum.Clocks) {
	for _, field := range strings.Fields(text) {
		number, micros, _ := strings.Cut(field, ":")
		node, err := strconv.Atoi(number)
		if err != nil || node < 0 || node >= len(c) {
			continue
		}
		c[node], _ = strconv.ParseUint(micros, 10, 64) // 0 if it is none
	}
	return c
}

// requestStanding asks a node for its standing. It returns an error if the node belongs to
// another cluster.
func (d *Driver) requestStanding(ctx context.Context, i int, code byte, args ...string) (s standing, err error) {
	text, err := d.sendOne(ctx, i, code, args...)
	if err != nil {
		return s, err
	}
	return d.parseStanding(i, text)
}

func (d *Driver) parseStanding(i int, text string) (s standing, err error) {
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("the script answered %q: %w", text, err)
	}
	return s, d.checkMembership(d.nodes[i], s.Cluster, s.Self)
}

// sendOne sends a request to one node and returns its answer.
func (d *Driver) sendOne(ctx context.Context, i int, code byte, args ...string) (string, error) {
	p := d.newPoll(nil)
	p.send(i, code, noLock(), args...)
	p.close()
	r := p.wait(ctx, d.readTimeout())
	if r[i].err != nil {
		return "", fmt.Errorf("%s: %w", d.nodes[i].address, r[i].err)
	}
	return r[i].text, nil
}

// readCountersAndAdmit reads the counters of a majority and admits the node with them.
func (d *Driver) readCountersAndAdmit(
	ctx context.Context, a *quorum.Admission, i int, floor uint64,
) (next time.Duration, admitted bool, err error) {
	reading := d.params.Reading(i, stripes+1) // the counters of all stripes, and the floor
	var wrong []error
	for node, r := range d.pollMost(ctx, d.readTimeout(), codeCounters, noLock(),
		func(r reply) bool { return strings.HasPrefix(r.text, "1") }) {
		if r.err != nil {
			continue
		}
		counts, counters, err := parseCounters(r.text)
		if err != nil { // useless, but perhaps the other nodes are enough
			wrong = append(wrong, fmt.Errorf("%s: %w", d.nodes[node].address, err))
			continue
		}
		reading.Answer(node, counts, counters)
	}
	least := uint64(0)
	if !reading.Complete() {
		if !reading.MajorityLost() {
			return probeInterval, false, errors.Join(wrong...)
		}
		least = cmp.Or(floor, driver.NextToken(0, time.Now()))
	}
	run, mark := a.Ticket()
	text, err := d.sendOne(ctx, i, codeAdmit, run, mark, strconv.FormatUint(least, 10),
		formatCounters(reading.Counters()), rediskit.Flag(floor > 0))
	return checkInterval, err == nil && text == "o", err
}

// maxToken limits counters and tokens. Lua represents integers exactly below 2^53, and tokens
// increase from any counter.
const maxToken = 1<<53 - 1<<20

// floorStripe is the number of the counter that belongs to no lock. It is the floor that an
// operator gave.
const floorStripe = stripes

// parseCounters parses the counters of a node. The result counts reports whether the
// node is admitted.
func parseCounters(text string) (counts bool, c quorum.Counters, err error) {
	fields := strings.Fields(text)
	if len(fields)%2 != 1 || fields[0] != "0" && fields[0] != "1" {
		return false, nil, fmt.Errorf("the script returned the counters %.100q", text)
	}
	c = make(quorum.Counters, stripes+1)
	for i := 1; i+1 < len(fields); i += 2 {
		stripe, err := strconv.Atoi(fields[i])
		if err != nil || stripe < 0 || stripe > floorStripe {
			continue // not one of our counters
		}
		if c[stripe], err = strconv.ParseUint(fields[i+1], 10, 64); err != nil {
			return false, nil, fmt.Errorf("the counter c%d is no number: %s", stripe, quoted(fields[i+1]))
		}
		if c[stripe] > maxToken {
			return false, nil, fmt.Errorf("the counter c%d is too large: %d", stripe, c[stripe])
		}
	}
	return fields[0] == "1", c, nil
}

// formatCounters formats the counters that are not zero.
func formatCounters(c quorum.Counters) string {
	var b []byte
	for stripe, n := range c {
		if n > 0 {
			b = append(strconv.AppendInt(b, int64(stripe), 10), ' ')
			b = append(strconv.AppendUint(b, n, 10), ' ')
		}
	}
	return string(b)
}
