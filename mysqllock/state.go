package mysqllock

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

type (
	entry   = rows.Entry
	lease   = rows.Lease
	attempt = rows.Attempt
)

// encode returns the entry as a line of a column. The id, the token and the times of an exclusive
// holder are stored in columns of their own, so that one statement can change them. Waiters have no
// end of their own, see reapDead.
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
	token        uint64 // the last one that was issued
	signaled     string // the driver whose waiter should run a round; column called
	capped       bool   // capEnds has changed an end, so it differs from the row
	reaped       bool   // dead waiters were removed, so it differs from the row
	maybeWritten bool   // a try to write our change that got no answer may have succeeded

	readOnly bool // the server has set read_only

	floor int64          // tokens of new rows are greater
	start driver.Instant // our clock before the row was read
}

// scanState scans the columns of the statements read and list. If the row is malformed, the state
// has neither holders nor waiters, and Err is the reason.
func (d *Driver) scanState(rows *sql.Rows) (s state, err error) {
	var name, id, called sql.NullString
	var version, token, slots, held, ttl, minHold, kept, since, ends sql.NullInt64
	var holder, holders, waiters []byte
	if err := rows.Scan(&s.floor, &s.Now, &s.readOnly, &name, &version, &token, &slots, &id, &held, &ttl, &minHold, &kept,
		&since, &ends, &holder, &holders,
		&waiters, &called); err != nil {
		return s, err
	}
	s.Name, s.exists, s.version, s.token = name.String, name.Valid, version.Int64, uint64(token.Int64)
	s.Slots, s.signaled = int(slots.Int64), called.String
	exclusive := entry{ID: id.String, Token: uint64(held.Int64), TTL: ttl.Int64, MinHold: minHold.Int64,
		Kept: kept.Int64 == 1, Since: since.Int64, Until: ends.Int64}
	err = s.parse(exclusive, holder, holders, waiters)
	if !s.exists && s.floor >= tooHigh {
		s.Err = d.rowError("", parseError{fmt.Errorf("its token %d is too high", s.floor)})
	}
	if kept.Int64 != 0 && kept.Int64 != 1 {
		err = parseError{fmt.Errorf("kept is %d, and has to be 0 or 1", kept.Int64)}
	}
	if err != nil {
		s.Holders, s.Waiters, s.Err = nil, nil, d.rowError(s.Name, err)
	}
	return s, nil
}

// parse parses the columns for holders and waiters. If exclusive has a token, there is an exclusive
// holder: exclusive has what is in columns of their own, and the line holder has the rest.
func (s *state) parse(exclusive entry, holder, holders, waiters []byte) (err error) {
	if s.token >= tooHigh {
		return parseError{fmt.Errorf("its token %d is too high", int64(s.token))}
	}
	if s.Waiters, err = parseEntries(waiters); err != nil {
		return parseError{fmt.Errorf("its waiters can't be read: %w", err)}
	}
	if s.Holders, err = parseEntries(holders); err != nil {
		return parseError{fmt.Errorf("its holders can't be read: %w", err)}
	}
	if exclusive.Token != 0 {
		if s.Holders, err = parseEntries(holder); err != nil || len(s.Holders) != 1 {
			return parseError{fmt.Errorf("its holder can't be read: %w",
				cmp.Or(err, error(driver.Sentinel("there is a token and no holder"))))}
		}
		h := &s.Holders[0]
		h.ID, h.Token, h.TTL, h.MinHold = exclusive.ID, exclusive.Token, exclusive.TTL, exclusive.MinHold
		h.Kept, h.Since, h.Until = exclusive.Kept, exclusive.Since, exclusive.Until
	}
	s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool { return h.Until <= s.Now })
	return nil
}

// args returns the state as arguments of the statements save and insert.
func (s *state) args() []any {
	var id string
	var held, ttl, minHold, since, ends int64
	var kept bool
	holder, holders := []byte{}, encodeEntries(s.Holders)
	if len(s.Holders) == 1 && !s.Holders[0].Shared && s.Slots == 0 {
		h := s.Holders[0]
		id, held, ttl, minHold, kept, since, ends = h.ID, int64(h.Token), h.TTL, h.MinHold, h.Kept, h.Since, h.Until
		h.ID, h.Token, h.TTL, h.MinHold, h.Kept, h.Since, h.Until = "", 0, 0, 0, false, 0, 0
		holder, holders = encode(h), []byte{}
	}
	var called any
	if s.signaled != "" {
		called = []byte(s.signaled)
	}
	return []any{int64(s.token), s.Slots, []byte(id), held, ttl, minHold, kept, since, ends, holder, holders,
		encodeEntries(s.Waiters), called, s.Now}
}

// removeHolder removes the holder with this token.
func (s *state) removeHolder(token uint64) {
	s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool { return h.Token == token })
}

// signalFirst signals the driver of the first waiter if that waiter can be granted. If it can't,
// no waiter behind it can; if it can, its grant signals the next one.
func (s *state) signalFirst() {
	s.signaled = ""
	if len(s.Waiters) == 0 {
		return
	}
	if _, grantable, _ := s.Position(s.Waiters[0].Nonce, false); grantable {
		s.signaled = s.Waiters[0].Process()
	}
}

// read reads the states of names from the primary. Names without a row are missing from the result,
// unless it is the only name. A server that has set read_only is refused, because it may know
// nothing of what the primary has granted since.
func (d *Driver) read(ctx context.Context, all []string) (map[string]*state, error) {
	return d.readBy(ctx, d.sql.Read, all, false)
}

// readCommitted reads the state of a name from the primary. It waits for the transactions that are
// changing the row, because a change of an older state would fail.
func (d *Driver) readCommitted(ctx context.Context, name string) (*state, error) {
	found, err := d.readBy(ctx, d.sql.ReadCommitted, []string{name}, false)
	return found[name], err
}

// readBy is read by one of the statements read and readCommitted, and also from a replica if
// replica is true.
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

// readStates is read for [rows.Backend], for people who look. They may look at a replica.
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

// rowMutexes has a mutex for each name whose row a goroutine of this process wants to change. If
// these goroutines raced, all but one would fail.
type rowMutexes struct {
	mu  sync.Mutex
	all map[string]*rowMutex
}

// A rowMutex exists while a goroutine has locked it or wants to lock it.
type rowMutex struct {
	semaphore

	users int
}

func (l *rowMutexes) init() { l.all = map[string]*rowMutex{} }

// lock locks the mutex of a name, and returns a function that unlocks it.
func (l *rowMutexes) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	m := l.all[name]
	if m == nil {
		m = &rowMutex{semaphore: make(semaphore, 1)}
		l.all[name] = m
	}
	m.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(l.all, name)
		}
	}
	leave, err := m.enter(ctx)
	if err != nil {
		forget()
		return nil, err
	}
	return func() { leave(); forget() }, nil
}

// change reads a row, lets fn change its state, and writes the state if fn returns true, or if the
// row has ends that are too late. If another client changed the row in between, change starts over.
func (d *Driver) change(ctx context.Context, name string, fn func(*state) (write bool, err error)) error {
	unlock, err := d.rowMutexes.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return d.changeLocked(ctx, name, fn)
}

// changeLocked is change for callers that have locked the mutex of the name.
func (d *Driver) changeLocked(ctx context.Context, name string, fn func(*state) (write bool, err error)) error {
	maybeWritten := false
	for try := 0; ; try++ {
		s, err := d.readCommitted(ctx, name)
		if err != nil {
			return err
		}
		if s.Err != nil {
			return s.Err
		}
		s.maybeWritten = maybeWritten
		write, refusal := fn(s)
		if !write && !s.capped {
			return refusal
		}
		res, err := d.save(ctx, s)
		maybeWritten = maybeWritten || res.repeated
		if err != nil || res.rows == 1 {
			return cmp.Or(refusal, d.rowError(name, err))
		}
		if err := backOff(ctx, try); err != nil {
			return err
		}
	}
}

// save writes a state, unless the row has changed since it was read.
func (d *Driver) save(ctx context.Context, s *state) (execResult, error) {
	if s.exists {
		return d.exec(ctx, d.sql.Save, append(s.args(), []byte(s.Name), s.version)...)
	}
	// Versions contain the time, so that no two rows of one name ever have the same version.
	args := append([]any{[]byte(s.Name), s.Now}, s.args()...)
	res, err := d.exec(ctx, d.sql.Insert, append(args, s.floor)...)
	if code(err) == duplicateKey {
		return execResult{repeated: res.repeated}, nil
	}
	return res, err
}
