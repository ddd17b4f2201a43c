package redlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// seen is what a node says of a lock.
type seen struct {
	Kind  string   `json:"kind"` // the type of the key
	Value string   `json:"value"`
	Left  int64    `json:"left"` // milliseconds; -1 if the key has no end
	Now   string   `json:"now"`  // microseconds
	Line  []string `json:"line"` // those who wait: two times in microseconds, of 16 digits each, when each was heard of last and first; and a holder
}

// Status implements [driver.Inspector]. It shows a holder if a majority of the nodes has it, or may have it as far as is known. A stranger's
// key is shown as a hold whose token is 0, and one without an end as if it lasted ten years more.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	l := lockOf(name)
	found, err := d.look(ctx, &l)
	if err != nil {
		return driver.Status{}, err
	}
	return found.status(name), nil
}

// A sight is what the nodes say of a lock.
type sight struct {
	quorum  int
	nodes   int
	answers []seen
}

// look asks all nodes for a lock.
func (d *Driver) look(ctx context.Context, l *lock) (*sight, error) {
	if d.life.Err() != nil {
		return nil, driver.ErrClosed
	}
	replies := d.askAll(ctx, 'l', l)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := d.majority(replies); err != nil {
		return nil, err
	}
	s := &sight{quorum: d.params.Quorum(), nodes: len(d.nodes)}
	for i, r := range replies {
		if !r.came || r.err != nil {
			continue
		}
		var one seen
		if err := json.Unmarshal([]byte(r.text), &one); err != nil {
			return nil, fmt.Errorf("%s: the script answered %q: %w", d.nodes[i].address, r.text, err)
		}
		s.answers = append(s.answers, one)
	}
	return s, nil
}

// A hold is what several nodes say of one holder.
type hold struct {
	value
	votes  int
	tokens map[uint64]int
	left   []time.Duration
	age    time.Duration
}

// holds returns what is known of the holders, by their nonces.
func (s *sight) holds() map[string]*hold {
	all := make(map[string]*hold)
	for _, a := range s.answers {
		if a.Kind != "string" {
			continue
		}
		v := parseValue(a.Value)
		h := all[v.nonce]
		if h == nil {
			h = &hold{value: v, tokens: make(map[uint64]int)}
			all[v.nonce] = h
		}
		h.votes++
		h.tokens[v.token]++
		h.left = append(h.left, parseMillis(strconv.FormatInt(a.Left, 10)))
		if now, err := strconv.ParseInt(a.Now, 10, 64); err == nil && v.ours {
			h.age = max(h.age, micros(now-v.holder.Since))
		}
	}
	return all
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// holder returns the one that a majority knows, or nil. Nodes that did not answer may know it, too, if most others do.
func (s *sight) holder() *hold {
	for _, h := range s.holds() {
		if h.votes+s.nodes-len(s.answers) >= s.quorum && 2*h.votes > len(s.answers) {
			return h
		}
	}
	return nil
}

// token returns the first token of the lease, by the last on which most agree, and of several the greatest.
func (h *hold) token() uint64 {
	var best uint64
	for token, votes := range h.tokens {
		if votes > h.tokens[best] || votes == h.tokens[best] && token > best {
			best = token
		}
	}
	return h.holder.firstOf(best)
}

func (s *sight) status(name string) driver.Status {
	st := driver.Status{Name: name}
	if h := s.holder(); h != nil {
		slices.Sort(h.left)
		st.Holders = []driver.Holding{{
			Owner: h.holder.Owner, Token: h.token(), Holder: h.holder.people(), Held: h.age,
			Left: h.left[max(0, len(h.left)-s.quorum)], // until a majority has forgotten it
		}}
	}
	st.Waiters = s.waiters()
	return st
}

// waiters returns those whom a majority knows.
func (s *sight) waiters() []driver.Waiting {
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
			if votes[h.Owner]++; votes[h.Owner] == s.quorum {
				all = append(all, driver.Waiting{Owner: h.Owner, Holder: h.people(), Waited: max(0, micros(now-at))})
			}
		}
	}
	slices.SortFunc(all, func(a, b driver.Waiting) int { return int(b.Waited - a.Waited) })
	return all
}

// List implements [driver.Inspector]. It finds the locks of snib: those of strangers can't be told from other strings, but [Driver.Status]
// shows them. It scans the nodes step by step, whatever else they keep, so it may miss what is taken meanwhile.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	names, err := d.scan(ctx, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		l := lockOf(name)
		s, err := d.look(ctx, &l)
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

// scan returns the names that begin with prefix and may be locks, in order.
func (d *Driver) scan(ctx context.Context, prefix string) ([]string, error) {
	if d.life.Err() != nil {
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
		return nil, d.silent(errs)
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// scan collects what may be locks on one node.
func (n *node) scan(ctx context.Context, prefix string, found map[string]bool) error {
	if err := n.why(); err != nil {
		return err
	}
	n.mu.Lock()
	client := n.client
	n.mu.Unlock()
	if client == nil {
		return errDown
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, release := client.Dedicate() // what it takes is not to delay locks
	defer release()
	for cursor := uint64(0); ; {
		b := conn.B().Scan().Cursor(cursor).Match("*" + escapeGlob(prefix) + "*").Count(1000)
		entry, err := conn.Do(ctx, b.Build()).AsScanEntry()
		if err != nil {
			return clean(err)
		}
		for _, key := range entry.Elements {
			if name, ok := nameIn(key); ok && strings.HasPrefix(name, prefix) {
				found[name] = true
			}
		}
		if cursor = entry.Cursor; cursor == 0 {
			return nil
		}
	}
}

// escapeGlob makes a pattern of a text that stands for itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// Break implements [driver.Inspector]. A stranger's hold has the token 0.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	l := lockOf(name)
	s, err := d.look(ctx, &l)
	if err != nil {
		return err
	}
	h := s.holder()
	if h == nil || h.holder.Owner != owner || h.token() != token {
		return driver.ErrLost
	}
	code := byte('b')
	if !h.ours {
		code = 'x'
	}
	verdict, ended, err := d.free(ctx, code, &l, h.nonce, "0", 1<<len(d.nodes)-1, driver.Now().Add(d.params.MaxTTL))
	switch {
	case verdict == quorum.Won:
		return nil
	case ended:
		return driver.ErrLost
	case err != nil:
		return err
	}
	return errors.New("some nodes have freed the lock, but no majority: ask again")
}
