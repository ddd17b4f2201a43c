package mysqllock

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

type (
	entry   = rows.Entry
	lease   = rows.Lease
	attempt = rows.Attempt
)

// encode returns the entry as a line of a column. The id, the TTL and the end of an exclusive
// holder are in columns of their own, so that one statement can renew many. Waiters have no end of
// their own, see reapDead.
func encode(e entry) []byte {
	o := object{e, e.ID, e.Shared}
	o.Nonce = ""
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // all of its fields can be encoded
	}
	return slices.Concat([]byte(e.Nonce), []byte(" "), text, []byte("\n"))
}

// An object is the part of a line that is JSON: an entry without its nonce. Its own fields hide
// those of the entry.
type object struct {
	entry

	ID     string `json:"id,omitempty"`
	Shared bool   `json:"shared,omitempty"`
}

func encodeEntries(all []entry) []byte {
	out := []byte{}
	for _, e := range all {
		out = append(out, encode(e)...)
	}
	return out
}

// parseEntries parses the lines of a column.
func parseEntries(text []byte) ([]entry, error) {
	var all []entry
	for line := range bytes.Lines(text) {
		nonce, text, _ := bytes.Cut(line, []byte(" "))
		o := object{}
		if err := json.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		o.entry.Nonce, o.entry.ID, o.entry.Shared = string(nonce), o.ID, o.Shared
		all = append(all, o.entry)
	}
	return all, nil
}

// tooHigh is the least token that the driver does not compute with.
const tooHigh = 1 << 62

// A state is a row as it was read. Its waiters include dead ones until reapDead removes them.
type state struct {
	rows.State

	exists       bool // the table has the row
	version      int64
	token        uint64 // the last one that was issued, or of a new row the floor
	signaled     string // the driver whose waiter should run a round; column called
	capped       bool   // capEnds has changed an end, so it differs from the row
	reaped       bool   // dead waiters were removed, so it differs from the row
	known        int    // length of the column waiters; others may have added waiters behind that
	complete     bool   // a change is right only if they have not
	recalled     bool   // it was not read just now, see rowMutex
	newcomer     *entry // to be added to the waiters; nothing else has changed
	maybeWritten bool   // a try to write our change that got no answer may have succeeded

	readOnly bool // a write would not be committed, see sql/commits.sql

	floor  int64          // tokens of new rows are greater
	latest int64          // the server's time, or later, where Now is that time or earlier
	start  driver.Instant // our clock when the server's was latest, or before
	at     driver.Instant // our clock when the server's was Now, or later
}

// scanState scans the columns of the statements read and list. If the row is malformed, the state
// has neither holders nor waiters, and Err is the reason.
func (d *Driver) scanState(rows *sql.Rows) (s state, err error) {
	var name, id, called sql.NullString
	var version, token, slots, ttl, ends sql.NullInt64
	var holders, waiters []byte
	if err := rows.Scan(&s.floor, &s.Now, &s.readOnly, &name, &version, &token, &slots, &id, &ttl, &ends, &holders,
		&waiters, &called); err != nil {
		return s, err
	}
	s.Name, s.exists, s.version, s.token = name.String, name.Valid, version.Int64, uint64(token.Int64)
	if !s.exists {
		s.token = uint64(s.floor)
	}
	s.Slots, s.signaled = int(slots.Int64), called.String
	s.latest, s.known = s.Now, len(waiters)
	err = s.parse(entry{ID: id.String, TTL: ttl.Int64, Until: ends.Int64}, holders, waiters)
	if err != nil {
		s.Holders, s.Waiters, s.Err = nil, nil, d.rowError(s.Name, err)
	}
	return s, nil
}

// parse parses the columns for holders and waiters. If exclusive has an id, it completes the only
// holder.
func (s *state) parse(exclusive entry, holders, waiters []byte) (err error) {
	if s.token >= tooHigh {
		return parseError{fmt.Errorf("its token %d is too high", int64(s.token))}
	}
	if s.Waiters, err = parseEntries(waiters); err != nil {
		return parseError{fmt.Errorf("its waiters can't be read: %w", err)}
	}
	if s.Holders, err = parseEntries(holders); err != nil {
		return parseError{fmt.Errorf("its holders can't be read: %w", err)}
	}
	if exclusive.ID != "" {
		if len(s.Holders) != 1 {
			return parseError{fmt.Errorf("it has an exclusive holder's id, and %d holders", len(s.Holders))}
		}
		h := &s.Holders[0]
		h.ID, h.TTL, h.Until = exclusive.ID, exclusive.TTL, exclusive.Until
	}
	s.removeEnded(s.Now)
	return nil
}

// removeEnded removes the holders whose time is over at a time of the server.
func (s *state) removeEnded(now int64) {
	s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool { return h.Until <= now })
}

// args returns the holders of the state as arguments of the statements save and insert. The column
// ends is the end of the last one.
func (s *state) args() []any {
	exclusive, holders, ends := entry{}, encodeEntries(s.Holders), int64(0)
	for _, h := range s.Holders {
		ends = max(ends, h.Until)
	}
	if len(s.Holders) == 1 && !s.Holders[0].Shared && !s.Holders[0].Kept && s.Slots == 0 {
		exclusive = s.Holders[0]
		h := exclusive
		h.ID, h.TTL, h.Until = "", 0, 0
		holders = encode(h)
	}
	return []any{int64(s.token), s.Slots, []byte(exclusive.ID), exclusive.TTL, ends, holders}
}

// queueArgs returns the queue of the state as arguments of the statement save.
func (s *state) queueArgs() []any {
	added, first, called := s.known+1, false, s.signaled // called is for the case that waiters were added
	for _, h := range s.Holders {
		if called == "" && h.Tell {
			called = h.Process()
		}
	}
	if len(s.Waiters) == 0 { // the first of those that were added is the first of all
		_, first, _ = s.Position(entry{Shared: true, Slots: math.MaxInt})
	}
	return []any{added, []byte(s.signaled), first, added, []byte(called), encodeEntries(s.Waiters), added,
		[]byte(s.Name)}
}

// signalFirst signals the driver of the first waiter if that waiter can be granted: its grant
// signals the next one. Otherwise no waiter can be granted, and a signal to a holder, that is to
// know of them, stays.
func (s *state) signalFirst() {
	told := func(h entry) bool { return h.Tell && !h.Kept && h.Process() == s.signaled }
	if len(s.Waiters) == 0 || !slices.ContainsFunc(s.Holders, told) {
		s.signaled = ""
	}
	if len(s.Waiters) > 0 {
		if _, grantable, _ := s.Position(s.Waiters[0]); grantable {
			s.signaled = s.Waiters[0].Process()
		}
	}
}

// readCommitted reads the state of a name from the primary. It waits for the transactions that are
// changing the row, because a change of an older state would fail.
func (d *Driver) readCommitted(ctx context.Context, name string) (*state, error) {
	found, err := d.readBy(ctx, d.sql.ReadCommitted, []string{name}, false)
	return found[name], err
}

// readBy reads the states of names by one of the statements read and readCommitted. Names without a
// row are missing from the result, unless it is the only name. Unless replica is true, a server
// that has set read_only is refused: it may know nothing of what the primary has granted since.
func (d *Driver) readBy(ctx context.Context, text string, all []string, replica bool) (map[string]*state, error) {
	found := map[string]*state{}
	for chunk := range slices.Chunk(all, maxNames) {
		start := driver.Now()
		err := d.query(ctx, forNames(text, len(chunk)), nameArgs(chunk), func(rows *sql.Rows) error {
			s, err := d.scanState(rows)
			if err == nil && s.readOnly && !replica {
				return errReadOnly
			}
			s.start = start
			s.capEnds(s.Now + driver.Now().Sub(start).Microseconds())
			if s.Name == "" && len(all) == 1 {
				s.Name = all[0] // no row has the name: only the clock and the floor are known
			}
			found[s.Name] = &s
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 1 && found[all[0]] == nil { // not even the row with the empty name exists
		if err := d.create(ctx); err != nil {
			return nil, err
		}
		return d.readBy(ctx, text, all, replica)
	}
	return found, d.reapDead(ctx, found)
}

// readStates is readBy for [rows.Backend], for people who look. They may look at a replica.
func (d *Driver) readStates(ctx context.Context, names []string) (map[string]*rows.State, error) {
	found, err := d.readBy(ctx, d.sql.Read, names, true)
	return statesOf(found), err
}

func statesOf(found map[string]*state) map[string]*rows.State {
	states := map[string]*rows.State{}
	for name, s := range found {
		states[name] = &s.State
	}
	return states
}

// rowMutexes has a mutex for each name whose row this process changes. If its goroutines raced, all
// but one would fail.
type rowMutexes struct {
	mu  sync.Mutex
	all map[string]*rowMutex
}

// maxRowMutexes bounds how many names are remembered.
const maxRowMutexes = 4096

// A rowMutex remembers the row as this process wrote it, or as the watcher saw it, so that the next
// change need not read it.
type rowMutex struct {
	semaphore

	last *state // nil if it is not known; only for who has locked the mutex
}

// offer has the next change of a row begin with a state that the watcher has seen. It does nothing
// if a change is under way.
func (l *rowMutexes) offer(s *state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.all[s.Name]; m != nil && s.Err == nil {
		select {
		case m.semaphore <- struct{}{}:
			m.last = s
			<-m.semaphore
		default:
		}
	}
}

// maxStateAge bounds how far the clocks of server and client can drift apart before a row is read
// again.
const maxStateAge = 10 * time.Second

// recall returns the row as this process knows it, at the present time, or nil. A holder allows for
// the error of its own clock, so recall allows for that of ours.
func (m *rowMutex) recall() *state {
	s, now := m.last, driver.Now()
	m.last = nil // the caller owns it
	if s == nil {
		return nil
	}
	if now.Sub(s.at) > maxStateAge {
		return nil
	}
	age := now.SubMono(s.at) // a step of our clock must not end another client's hold
	s.latest, s.start, s.recalled = s.Now+now.Sub(s.start).Microseconds(), now, true
	s.Now += age.Microseconds()
	s.removeEnded(s.Now - age.Microseconds()/driver.Drift)
	return s
}

// remember remembers a state that a statement wrote. It corrects the start of s: a holder must not
// rely on its lease for longer than the server grants it, even if the server's clock was set
// forward since s was read or recalled.
func (m *rowMutex) remember(s *state, res execResult) {
	now := res.id // the server's
	if start := res.sent.Add(time.Duration(s.latest-now) * time.Microsecond); start.Before(s.start) {
		s.start = start
	}
	m.last = &state{State: s.State, exists: true, version: res.version, token: s.token, signaled: s.signaled,
		known: len(encodeEntries(s.Waiters)), start: res.sent, at: driver.Now()}
	m.last.Now = now
}

// lock locks the mutex of a name, and returns it and a function that unlocks it. If there are too
// many names, it forgets all mutexes. Then two goroutines may race, and one of them starts over. So
// does a release or a renewal that has waited for long: who has the mutex may wait for its turn.
func (l *rowMutexes) lock(ctx context.Context, name string) (m *rowMutex, unlock func(), err error) {
	l.mu.Lock()
	if m = l.all[name]; m == nil {
		if len(l.all) >= maxRowMutexes {
			clear(l.all)
		}
		m = &rowMutex{semaphore: make(semaphore, 1)}
		l.all[name] = m
	}
	l.mu.Unlock()
	if !isAdmitted(ctx) {
		unlock, err = m.enter(ctx)
		return m, unlock, err
	}
	short, cancel := context.WithTimeout(ctx, pollInterval)
	defer cancel()
	if unlock, err = m.enter(short); err != nil && ctx.Err() == nil {
		return &rowMutex{}, func() {}, nil
	}
	return m, unlock, err
}

// change lets fn change the state of a row, and writes the state if fn returns true, or if the row
// has ends that are too late. If another client changed the row in between, change starts over. fn
// gets the row as this process has last written it, if that is known, and otherwise as it is.
func (d *Driver) change(ctx context.Context, name string, fn func(*state) (write bool, err error)) error {
	m, unlock, err := d.rowMutexes.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return d.changeLocked(ctx, name, m, fn)
}

// changeLocked is change for callers that have locked m, the mutex of the name.
func (d *Driver) changeLocked(ctx context.Context, name string, m *rowMutex,
	fn func(*state) (write bool, err error)) error {
	maybeWritten := false
	for lost := 0; ; {
		s, err := m.recall(), error(nil)
		if s != nil {
			err = d.reapDead(ctx, map[string]*state{name: s})
		} else {
			s, err = d.readCommitted(ctx, name)
		}
		if err != nil {
			return err
		}
		if s.Err != nil {
			return s.Err
		}
		s.maybeWritten = maybeWritten
		write, refusal := fn(s)
		if !write && s.recalled {
			continue // the row may have changed since
		}
		if !write && !s.capped {
			return refusal
		}
		res, err := d.save(ctx, s)
		maybeWritten = maybeWritten || res.repeated
		if err == nil && res.rows == 1 {
			switch {
			case res.id == 0: // nothing tells when the lease began
				return errHidden
			case s.newcomer == nil:
				m.remember(s, res)
			case res.id != s.version:
				continue // it is queued, and may be the first now
			}
		}
		if err != nil || res.rows == 1 {
			return cmp.Or(refusal, d.rowError(name, err))
		}
		if !s.recalled {
			if err := backOff(ctx, lost); err != nil {
				return err
			}
			lost++
		}
	}
}

// save writes a state, unless the row has changed since it was read.
func (d *Driver) save(ctx context.Context, s *state) (res execResult, err error) {
	if w := s.newcomer; w != nil {
		return d.exec(ctx, d.sql.Enqueue, []byte(s.signaled), encode(*w), []byte(s.Name), s.Slots > 0, []byte(w.Nonce+" "))
	}
	if s.exists {
		return d.exec(ctx, d.sql.Save, slices.Concat(s.args(), s.queueArgs(), []any{s.version, !s.complete, s.known + 1})...)
	}
	res, err = d.exec(ctx, d.sql.Insert, append(append([]any{[]byte(s.Name)}, s.args()...), s.floor)...)
	if code(err) == duplicateKey {
		return execResult{repeated: res.repeated}, nil
	}
	return res, err
}
