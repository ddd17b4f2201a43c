package redlock

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

const (
	// interval is how often the agent looks at nodes that are not admitted and need something other than time.
	interval = 250 * time.Millisecond

	// hung is after how long without an answer the agent finds out whether it is the server that hangs, or only the connection that is
	// dead, and how often.
	hung = 3 * time.Second
)

// An agent looks after nodes in the background: it admits those that restarted, see [quorum.Admission], and replaces connections that are
// dead. Each driver has one; they don't know of one another.
type agent struct {
	d          *Driver
	wake       chan struct{} // of one
	admissions []quorum.Admission
}

func (g *agent) init(d *Driver) {
	g.d, g.wake = d, make(chan struct{}, 1)
	for range d.nodes {
		g.admissions = append(g.admissions, d.params.Admission())
	}
}

// notice makes the agent look at the nodes.
func (g *agent) notice() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// suspect makes it look whether a node is admitted.
func (g *agent) suspect(node int) {
	n := g.d.nodes[node]
	n.mu.Lock()
	was := n.suspect
	n.suspect = true
	n.mu.Unlock()
	if !was {
		g.notice()
	}
}

// run is the agent's goroutine. It sleeps while all is well.
func (g *agent) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-g.wake:
		case <-timer.C:
		case <-g.d.life.Done():
			return
		}
		if pause, more := g.look(); more {
			timer.Reset(pause)
		}
	}
}

// look does for each node what there is to do, and returns when to look again, if at all.
func (g *agent) look() (pause time.Duration, more bool) {
	pause = time.Hour
	for i, n := range g.d.nodes {
		n.mu.Lock()
		suspect, busy := n.suspect, !n.busy.IsZero()
		n.mu.Unlock()
		if suspect {
			next, admitted, err := g.d.admit(g.d.life, &g.admissions[i], i, g.floor)
			if admitted {
				n.mu.Lock()
				n.suspect = false
				n.mu.Unlock()
				continue
			}
			if err != nil {
				next = interval
			}
			pause, more = min(pause, next), true
		}
		if busy { // perhaps for long: somebody has waited for it in vain
			g.probe(n)
			pause, more = min(pause, hung), true
		}
	}
	return pause, more
}

// floor is the policy for nodes whose counters no majority knows any more.
func (g *agent) floor() (least uint64, operator bool, err error) {
	if g.d.conf.loss == Refuse {
		return 0, false, fmt.Errorf("%w: a majority of the nodes has forgotten its counters, and somebody must say where they go on (recover)", errNoMajority)
	}
	return driver.NextToken(0, time.Now()), false, nil
}

// probe gives up a connection that has been silent for long, if the server answers on another one.
func (g *agent) probe(n *node) {
	if !n.hungFor(hung) || n.calls.Done() != nil { // a user's client looks after itself
		return
	}
	ctx, cancel := context.WithTimeout(g.d.life, g.d.conf.timeout)
	defer cancel()
	alive := make(chan error, 1)
	go func() {
		client, err := n.dial(ctx)
		if err == nil {
			err = client.Do(ctx, client.B().Ping().Build()).Error()
			client.Close()
		}
		alive <- err
	}()
	if err := <-alive; err == nil && n.hungFor(hung) {
		n.hangUp(errOverdue)
	}
}

// A floor returns where counters go on that no majority knows any more, and whether an operator says so, or a clock.
type floor func() (least uint64, operator bool, err error)

// flag writes a truth as scripts take it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// A standing is what a node knows of itself.
type standing struct {
	Run      string `json:"run"`
	Admitted string `json:"admitted"`
	Mark     string `json:"mark"`
	Cluster  string `json:"cluster"`
	Self     string `json:"self"`
}

// admit takes the next step towards the admission of a node, and returns how long to wait before the one after it.
func (d *Driver) admit(
	ctx context.Context, a *quorum.Admission, i int, floor floor,
) (next time.Duration, admitted bool, err error) {
	s, err := d.standing(ctx, i, 's')
	for tries := 0; err == nil && tries < 2; tries++ {
		move, wait := a.Look(quorum.Standing{Run: s.Run, Admitted: s.Admitted, Mark: s.Mark}, driver.Now())
		switch move {
		case quorum.None:
			return 0, true, nil
		case quorum.Wait:
			return wait, false, nil
		case quorum.Read:
			return d.readBack(ctx, a, i, floor)
		case quorum.Mark:
			s, err = d.standing(ctx, i, 'm', rand.Text())
		}
	}
	return interval, false, err
}

// standing asks a node how it stands, and refuses one that belongs to others.
func (d *Driver) standing(ctx context.Context, i int, code byte, args ...string) (s standing, err error) {
	text, err := d.one(ctx, i, code, args...)
	if err != nil {
		return s, err
	}
	return d.readStanding(i, text)
}

func (d *Driver) readStanding(i int, text string) (s standing, err error) {
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("the script answered %q: %w", text, err)
	}
	return s, d.belongs(d.nodes[i], s.Cluster, s.Self)
}

// one asks one node.
func (d *Driver) one(ctx context.Context, i int, code byte, args ...string) (string, error) {
	p := d.newPoll(nil)
	p.ask(i, code, noLock(), args...)
	p.close()
	r := p.wait(ctx, max(d.conf.timeout, time.Second))
	if err := errorsOf(r)[i]; err != nil {
		return "", fmt.Errorf("%s: %w", d.nodes[i].address, err)
	}
	return r[i].text, nil
}

// readBack reads the counters of a majority, and admits the node.
func (d *Driver) readBack(
	ctx context.Context, a *quorum.Admission, i int, floor floor,
) (next time.Duration, admitted bool, err error) {
	reading := d.params.Reading(i, stripes+1) // and the floor
	var wrong []error
	for node, r := range d.askAll(ctx, 'c', noLock()) {
		if r.err != nil || !r.came {
			reading.Away(node)
			continue
		}
		counts, counters, err := parseCounters(r.text)
		if err != nil { // it is of no use, but perhaps the others are enough
			wrong = append(wrong, fmt.Errorf("%s: %w", d.nodes[node].address, err))
			reading.Away(node)
			continue
		}
		reading.Answer(node, counts, counters)
	}
	least, operator := uint64(0), false
	if reading.Verdict() != quorum.Won {
		if !reading.MajorityLost() {
			return interval, false, errors.Join(wrong...)
		}
		if least, operator, err = floor(); err != nil {
			return 0, false, err
		}
	}
	run, mark := a.Ticket()
	text, err := d.one(ctx, i, 'j', run, mark, strconv.FormatUint(least, 10), formatCounters(reading.Counters(0)), flag(operator))
	return interval, err == nil && text == "o", err
}

// mostToken bounds counters and tokens: Lua has numbers exactly below 2^53, and tokens go on from them.
const mostToken = 1<<53 - 1<<20

// floorStripe is the number of the counter that is no lock's: the floor that an operator gave.
const floorStripe = stripes

// parseCounters reads the counters that a node tells.
func parseCounters(text string) (counts bool, c quorum.Counters, err error) {
	fields := strings.Fields(text)
	if len(fields)%2 != 1 || fields[0] != "0" && fields[0] != "1" {
		return false, nil, fmt.Errorf("the script told of counters %.100q", text)
	}
	c = make(quorum.Counters, stripes+1)
	for i := 1; i+1 < len(fields); i += 2 {
		stripe, err := strconv.Atoi(fields[i])
		if err != nil || stripe < 0 || stripe > floorStripe {
			continue // no counter of ours
		}
		if c[stripe], err = strconv.ParseUint(fields[i+1], 10, 64); err != nil {
			return false, nil, fmt.Errorf("the counter c%d is no number: %s", stripe, quoted(fields[i+1]))
		}
		if c[stripe] > mostToken {
			return false, nil, fmt.Errorf("the counter c%d is too great: %d", stripe, c[stripe])
		}
	}
	return fields[0] == "1", c, nil
}

// formatCounters writes those that are not zero.
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
