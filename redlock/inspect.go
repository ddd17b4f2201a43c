package redlock

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A nodeSnapshot is what one node knows of a lock.
type nodeSnapshot struct {
	Kind  string         `json:"kind"` // the Redis type of the key
	Value rediskit.Bytes `json:"value"`
	Left  json.Number    `json:"left"` // milliseconds; -1 for a key without expiry
	Now   string         `json:"now"`  // microseconds

	Closed string `json:"closed"` // see closed in script/node.lua; empty if the node is admitted

	// Line has the waiters. An entry has two times of 16 digits each, in microseconds, when the
	// waiter was last and first seen; then its holder as JSON.
	Line []string `json:"line"`
}

// Status implements [driver.Inspector]. It shows a holder if a majority of the nodes has it, or
// may have it as far as is known: then nobody can acquire the lock. It shows a foreign key as a
// hold with token 0, and what is left of a key without expiry as [driver.NoExpiry]. A key that is
// no string keeps the lock from being taken, too, and is shown as a hold without an id.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	l := lockOf(name)
	found, err := d.readSnapshot(ctx, &l)
	if err != nil {
		return driver.Status{}, err
	}
	return found.status(name), nil
}

// A snapshot is what the nodes that answered know of a lock. A node that is not admitted may have
// forgotten the lock, so only a key there is an answer.
type snapshot struct {
	quorum  int
	nodes   int
	answers []nodeSnapshot
}

// readSnapshot asks all nodes for a lock. It returns an error unless a majority answers. It waits
// for a slow node, which has a vote, if nobody else knows whether a majority has a lease.
func (d *Driver) readSnapshot(ctx context.Context, l *lock) (*snapshot, error) {
	if d.life.Over() {
		return nil, driver.ErrClosed
	}
	p, majority := d.newMajorityPoll(nil)
	p.sendToAll(codeShowLock, l)
	s, err := d.snapshotOf(p.waitMost(ctx, majority, d.readTimeout()))
	if err == nil && s.isOpen() {
		s, err = d.snapshotOf(p.wait(ctx, d.conf.timeout))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s, err
}

// snapshotOf reads the nodes' answers.
func (d *Driver) snapshotOf(replies []reply) (*snapshot, error) {
	s := &snapshot{quorum: d.params.Quorum(), nodes: len(d.nodes)}
	for i := range replies {
		r := &replies[i]
		if r.err != nil {
			continue
		}
		var one nodeSnapshot
		if err := json.Unmarshal([]byte(r.text), &one); err != nil {
			return nil, fmt.Errorf("%s: the script's answer for a lock: %w", d.nodes[i].address, err)
		}
		if r.err = refusal(one.Closed); r.err == nil || one.Kind != "none" {
			s.answers = append(s.answers, one)
			r.err = nil
		}
	}
	return s, d.requireMajority(replies)
}

// A leaseVotes collects what several nodes know of one lease.
type leaseVotes struct {
	value
	kind   string // the Redis type of its keys, or of the first one if they are no strings
	votes  int
	tokens map[uint64]int
	shown  map[holder]int // what nodes tell of the holder, without since
	left   []time.Duration
	age    time.Duration

	minHold []time.Duration // what was left of it
}

// leases returns all leases in the snapshot. All keys that are no strings count as one lease: they
// keep the lock from being taken, and those that are locks of Redisson have different ids.
func (s *snapshot) leases() map[string]*leaseVotes {
	all := make(map[string]*leaseVotes)
	for _, a := range s.answers {
		if a.Kind == "none" {
			continue
		}
		id, v := "", value{}
		if a.Kind == "string" {
			v = parseValue(string(a.Value))
			id = "the string " + v.nonce
		}
		h := all[id]
		if h == nil {
			h = &leaseVotes{value: v, kind: a.Kind, tokens: make(map[uint64]int), shown: make(map[holder]int)}
			all[id] = h
		}
		h.votes++
		h.tokens[v.token]++
		shown := v.holder
		shown.Since = 0
		h.shown[shown]++
		h.left = append(h.left, parseMillis(a.Left.String()))
		h.minHold = append(h.minHold, v.minHoldLeft(a.Now))
		if now, err := strconv.ParseInt(a.Now, 10, 64); err == nil && v.ours {
			h.age = max(h.age, rediskit.Micros(now-v.holder.Since))
		}
	}
	return all
}

// holder returns the lease that a majority has, or may have if the nodes without an answer have it
// too; else nil. Of several that may have one, it returns the one with the most nodes, then the
// oldest: a request that loses is soon gone.
func (s *snapshot) holder() (best *leaseVotes) {
	for _, h := range s.leases() {
		if s.mayHaveMajority(h) &&
			(best == nil || cmp.Or(cmp.Compare(h.votes, best.votes), cmp.Compare(h.age, best.age)) > 0) {
			best = h
		}
	}
	return best
}

// lease returns the lease with an id that a majority has, or may have; else nil.
func (s *snapshot) lease(id string) *leaseVotes {
	for _, h := range s.leases() {
		if h.holder.ID == id && s.mayHaveMajority(h) {
			return h
		}
	}
	return nil
}

// isOpen reports whether a lease may have a majority, and may have none.
func (s *snapshot) isOpen() bool {
	h := s.holder()
	return h != nil && h.votes < s.quorum
}

func (s *snapshot) mayHaveMajority(h *leaseVotes) bool {
	return h.votes+s.nodes-len(s.answers) >= s.quorum
}

// token returns the first token of the lease. It is computed from the last token that most
// nodes have or, in a tie, from the greatest such token.
func (h *leaseVotes) token() uint64 {
	return h.holder.firstToken(mostVotes(h.tokens, func(a, b uint64) bool { return a > b }))
}

// mostVotes returns what most nodes say. In a tie, isBetter decides.
func mostVotes[T comparable](votes map[T]int, isBetter func(a, b T) bool) (best T) {
	for one, n := range votes {
		if n > votes[best] || n == votes[best] && isBetter(one, best) {
			best = one
		}
	}
	return best
}

func (s *snapshot) status(name string) driver.Status {
	st := driver.Status{Name: name}
	if h := s.holder(); h != nil {
		slices.Sort(h.left)
		newest := func(a, b holder) bool { return a.Set > b.Set }
		st.Holders = []driver.Holding{{
			ID: h.holder.ID, Token: h.token(), Holder: mostVotes(h.shown, newest).toDriver(), Held: h.age,
			Left: h.left[max(0, len(h.left)-s.quorum)], // until a majority has forgotten it
		}}
		if h.kind != "string" {
			st.Holders[0].Foreign = rediskit.DescribeUnknown(h.kind)
		}
	}
	st.Waiters = s.waiters()
	return st
}

// waiters returns the waiters that a majority knows.
func (s *snapshot) waiters() []driver.Waiting {
	votes := make(map[string]int)
	var all []driver.Waiting
	for _, a := range s.answers {
		now, err := strconv.ParseInt(a.Now, 10, 64)
		for _, entry := range a.Line {
			const digits = 16
			var h holder
			if err != nil || len(entry) < 2*digits || json.Unmarshal([]byte(entry[2*digits:]), &h) != nil {
				continue
			}
			at, _ := strconv.ParseInt(entry[digits:2*digits], 10, 64)
			if votes[h.ID]++; votes[h.ID] == s.quorum {
				all = append(all, driver.Waiting{ID: h.ID, Holder: h.toDriver(), Waited: max(0, rediskit.Micros(now-at))})
			}
		}
	}
	slices.SortFunc(all, func(a, b driver.Waiting) int { return int(b.Waited - a.Waited) })
	return all
}

// List implements [driver.Inspector]. It finds only locks of snib, because foreign keys can't
// be told from other strings; [Driver.Status] shows those. It scans each node step by step,
// over all of its keys, so it may miss locks that are taken meanwhile.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	names, err := d.scan(ctx, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		l := lockOf(name)
		s, err := d.readSnapshot(ctx, &l)
		if err != nil {
			return err
		}
		if h := s.holder(); h != nil && !h.ours {
			continue
		}
		if st := s.status(name); len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
			return nil
		}
	}
	return nil
}

// scan returns, in order, the names that begin with prefix and may be locks.
func (d *Driver) scan(ctx context.Context, prefix string) ([]string, error) {
	if d.life.Over() {
		return nil, driver.ErrClosed
	}
	found := make(map[string]bool)
	errs := make([]error, len(d.nodes))
	answered := 0
	for i, n := range d.nodes {
		if errs[i] = n.scan(ctx, prefix, found); errs[i] == nil {
			answered++
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if answered < d.params.Quorum() {
		return nil, d.noMajority(errs)
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// scan adds to found the names that may be locks on one node.
func (n *node) scan(ctx context.Context, prefix string, found map[string]bool) error {
	if err := n.downReason(); err != nil {
		return err
	}
	n.mu.Lock()
	client := n.client
	n.mu.Unlock()
	if client == nil {
		return errDown
	}
	conn, release := client.Dedicate() // a long scan must not delay locks
	defer release()
	for cursor := uint64(0); ; {
		b := conn.B().Scan().Cursor(cursor).Match("*" + rediskit.EscapeGlob(prefix) + "*").Count(1000)
		step, cancel := context.WithTimeout(ctx, dialTimeout)
		entry, err := conn.Do(step, b.Build()).AsScanEntry()
		cancel()
		if err != nil {
			return sanitize(err)
		}
		for _, key := range entry.Elements {
			if name, ok := nameOf(key); ok && strings.HasPrefix(name, prefix) {
				found[name] = true
			}
		}
		if cursor = entry.Cursor; cursor == 0 {
			return nil
		}
	}
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	l := lockOf(name)
	s, err := d.readSnapshot(ctx, &l)
	if err != nil {
		return err
	}
	h := s.lease(id)
	if h == nil || h.kind != "string" {
		return driver.ErrLost
	}
	code := byte(codeBreak)
	if !h.ours {
		code = codeFreeForeign
	}
	_, err = d.tell(ctx, d.allNodes(), driver.Now().Add(d.params.MaxTTL), code, &l, h.nonce, "0")
	return err
}

// Withdraw implements [driver.Inspector]. Nobody waits behind the waiter, as there is no order.
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	if d.life.Over() {
		return driver.ErrClosed
	}
	l := lockOf(name)
	replies := d.removeWaiter(d.allNodes(), &l, id).wait(ctx, d.readTimeout())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.requireMajority(replies)
}
