package mysqllock

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// An entry is one holder or waiter. Times are microseconds of the server's clock. Of an exclusive holder the token and the
// times stand in columns of their own, so that one statement can change them.
type entry struct {
	Owner   string `json:"owner"`
	Nonce   string `json:"-"` // of the attempt that made it, unique; it stands before the object
	Shared  bool   `json:"shared,omitempty"`
	Tell    bool   `json:"tell,omitempty"`    // the holder wants to know when another process waits
	Kept    bool   `json:"kept,omitempty"`    // released, and kept until MinHold is over
	Session string `json:"session,omitempty"` // the lock that its session has

	Token  uint64 `json:"token,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	TTL    int64  `json:"ttl,omitempty"` // of the request
	Since  int64  `json:"since,omitempty"`
	Until  int64  `json:"until,omitempty"` // waiters have none: they count while their process lives

	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`
}

// process is the id of the driver that made an entry.
func (e *entry) process() string {
	id, _, _ := strings.Cut(e.Nonce, "-")
	return id
}

func (e *entry) holder() driver.Holder {
	return driver.Holder{Host: e.Host, PID: e.PID, Label: e.Label}
}

// line is how an entry stands in a column.
func (e *entry) line() []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // there is nothing in it that JSON can't say
	}
	return slices.Concat([]byte(e.Nonce), []byte(" "), text, []byte("\n"))
}

func lines(all []entry) []byte {
	out := []byte{}
	for _, e := range all {
		out = append(out, e.line()...)
	}
	return out
}

// parse reads lines.
func parse(text []byte) ([]entry, error) {
	var all []entry
	for line := range bytes.Lines(text) {
		nonce, object, _ := bytes.Cut(line, []byte(" "))
		e := entry{}
		if err := json.Unmarshal(object, &e); err != nil {
			return nil, err
		}
		e.Nonce = string(nonce)
		all = append(all, e)
	}
	return all, nil
}

// A state is a row as of now, without what had ended by then.
type state struct {
	name      string
	there     bool // the row is
	version   int64
	token     uint64 // the last that was given
	slots     int
	holders   []entry
	waiters   []entry // with those that died
	unchanged []entry // holders that were not renewed for their TTL by our clock, and have not ended by the server's
	called    string  // the driver whose waiter should look
	buried    bool    // it is not as it was read: who died was taken out
	doubt     bool    // an earlier attempt to write our change may have succeeded

	now   int64
	floor int64          // tokens of new rows are above it
	start driver.Instant // our clock before it was read
}

// scan reads the columns of load and list.
func scan(rows *sql.Rows) (s state, err error) {
	var name, called sql.NullString
	var version, token, slots, held, since, ends sql.NullInt64
	var kept sql.NullBool
	var holder, holders, waiters []byte
	if err := rows.Scan(&s.floor, &s.now, &name, &version, &token, &slots, &held, &kept, &since, &ends, &holder, &holders,
		&waiters, &called); err != nil {
		return s, err
	}
	s.name, s.there, s.version, s.token = name.String, name.Valid, version.Int64, uint64(token.Int64)
	s.slots, s.called = int(slots.Int64), called.String
	broken := func(err error) error {
		return fmt.Errorf("%w row of %q: it can't be read: %w", driver.ErrInvalid, s.name, err)
	}
	if s.waiters, err = parse(waiters); err != nil {
		return s, broken(err)
	}
	if s.holders, err = parse(holders); err != nil {
		return s, broken(err)
	}
	if held.Int64 != 0 {
		if s.holders, err = parse(holder); err != nil || len(s.holders) != 1 {
			return s, broken(cmp.Or(err, error(driver.Sentinel("there is a token and no holder"))))
		}
		h := &s.holders[0]
		h.Token, h.Kept, h.Since, h.Until = uint64(held.Int64), kept.Bool, since.Int64, ends.Int64
	}
	s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return h.Until <= s.now })
	return s, nil
}

// row is the state as arguments of save and add.
func (s *state) row() []any {
	var held, since, ends int64
	var kept bool
	holder, holders := []byte{}, lines(s.holders)
	if len(s.holders) == 1 && !s.holders[0].Shared && s.slots == 0 {
		h := s.holders[0]
		held, kept, since, ends = int64(h.Token), h.Kept, h.Since, h.Until
		h.Token, h.Kept, h.Since, h.Until = 0, false, 0, 0
		holder, holders = h.line(), []byte{}
	}
	var called any
	if s.called != "" {
		called = []byte(s.called)
	}
	return []any{int64(s.token), s.slots, held, kept, since, ends, holder, holders, lines(s.waiters), called, s.now}
}

// held returns the hold that req's owner has, or nil.
func (s *state) held(req driver.Request) *entry {
	for i, h := range s.holders {
		if h.Owner == req.Owner && h.Shared == req.Shared && !h.Kept && s.slots == req.Slots {
			return &s.holders[i]
		}
	}
	return nil
}

// by returns the entry with this token, or nil.
func (s *state) by(token uint64) *entry {
	for i, h := range s.holders {
		if h.Token == token && !h.Kept {
			return &s.holders[i]
		}
	}
	return nil
}

// drop removes the holder with this token.
func (s *state) drop(token uint64) {
	s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return h.Token == token })
}

// fits reports whether the name may be used for such requests at present.
func (s *state) fits(req driver.Request) bool {
	return s.slots == req.Slots || len(s.holders)+len(s.waiters) == 0
}

// refusal says why a request was not granted in this state.
func (s *state) refusal(req driver.Request) error {
	switch {
	case s.fits(req):
		return driver.ErrHeld
	case s.slots == 0:
		return fmt.Errorf("%w: the name is in use as a lock and not as a semaphore", driver.ErrKind)
	default:
		return fmt.Errorf("%w: the name is in use as a semaphore of %d slots", driver.ErrKind, s.slots)
	}
}

// turn reports whether the waiter with this nonce, or a newcomer, can be granted, and if not, when that may change by
// itself. place is -1 for a newcomer.
func (s *state) turn(nonce string, shared bool) (place int, granted bool, sleep time.Duration) {
	busy, alone := len(s.holders), false
	end := s.now + time.Hour.Microseconds()
	for _, h := range s.holders {
		alone = alone || !h.Shared
		end = min(end, h.Until)
	}
	place = -1
	for i, w := range s.waiters {
		if w.Nonce == nonce {
			place, shared = i, w.Shared
			break
		}
		busy++
		alone = alone || !w.Shared
	}
	granted = busy == 0 || shared && !alone
	if s.slots > 0 {
		granted = busy < s.slots
	}
	return place, granted, time.Duration(end-s.now) * time.Microsecond
}

// call notes the driver of the first waiter, so that it looks, if that can be granted: if not, nobody behind it can. When it
// is granted it calls the next.
func (s *state) call() {
	s.called = ""
	if len(s.waiters) == 0 {
		return
	}
	if _, granted, _ := s.turn(s.waiters[0].Nonce, false); granted {
		s.called = s.waiters[0].process()
	}
}

// strangers reports whether another process waits than that of the driver with this id.
func (s *state) strangers(id string) bool {
	return slices.ContainsFunc(s.waiters, func(w entry) bool { return w.process() != id })
}

// status describes the state to people. Where holds have no end of their own, most is how long they last without a sign of
// life.
func (s *state) status(most time.Duration) driver.Status {
	st := driver.Status{Name: s.name}
	if len(s.holders)+len(s.waiters) > 0 {
		st.Slots = s.slots
	}
	if len(s.waiters) > 0 {
		st.Shared = s.waiters[0].Shared
	}
	between := func(from, to int64) time.Duration { return time.Duration(max(0, to-from)) * time.Microsecond }
	for _, h := range s.holders {
		st.Shared = h.Shared
		st.Holders = append(st.Holders, driver.Holding{
			Owner: h.Owner, Token: h.Token, Holder: h.holder(), Held: between(h.Since, s.now), Left: min(most, between(s.now, h.Until)),
		})
	}
	for _, w := range s.waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: w.Owner, Shared: w.Shared, Holder: w.holder(), Waited: between(w.Since, s.now),
		})
	}
	return st
}

// read reads the states of names; those without a row are missing.
func (d *Driver) read(ctx context.Context, all []string) (map[string]*state, error) {
	found := map[string]*state{}
	for chunk := range slices.Chunk(all, sizes[len(sizes)-1]) {
		n := size(len(chunk))
		start := driver.Now()
		err := d.query(ctx, forNames(d.sql.load, n), names(chunk, n), func(rows *sql.Rows) error {
			s, err := scan(rows)
			s.start = start
			if s.name == "" && len(all) == 1 {
				s.name = all[0] // it has no row: what is known of the table is all there is
			}
			found[s.name] = &s
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 1 && found[all[0]] == nil { // not even the row that every table has
		d.store.ready.Store(false) // so that the next attempt fills the table
		return nil, fmt.Errorf("%w: table %s: %w", driver.ErrUnavailable, d.conf.table, errEmpty)
	}
	return found, d.bury(ctx, found)
}

// lanes keep those of one process apart who want to change the same row: all but one would do it in vain.
type lanes [64]semaphore

func (l *lanes) init() {
	for i := range l {
		l[i] = make(semaphore, 1)
	}
}

// enter waits for the lane of a name, and returns how to leave it.
func (l *lanes) enter(ctx context.Context, name string) (leave func(), err error) {
	return l[crc32.ChecksumIEEE([]byte(name))%uint32(len(l))].enter(ctx)
}

// change reads a row, has fn change its state, and writes that if fn says so. If another has changed the row in between,
// all is done again.
func (d *Driver) change(ctx context.Context, name string, fn func(*state) (write bool, err error)) error {
	leave, err := d.lanes.enter(ctx, name)
	if err != nil {
		return err
	}
	defer leave()
	return d.changeAlone(ctx, name, fn)
}

// changeAlone is change for callers that have the lane of the name.
func (d *Driver) changeAlone(ctx context.Context, name string, fn func(*state) (write bool, err error)) error {
	doubt := false
	for try := 0; ; try++ {
		found, err := d.read(ctx, []string{name})
		if err != nil {
			return err
		}
		s := found[name]
		s.doubt = doubt
		write, err := fn(s)
		if err != nil || !write {
			return err
		}
		out, err := d.save(ctx, s)
		if err != nil || out.rows == 1 {
			return err
		}
		doubt = doubt || out.repeated
		if err := stagger(ctx, try); err != nil {
			return err
		}
	}
}

// save writes a state, unless the row has changed since it was read.
func (d *Driver) save(ctx context.Context, s *state) (done, error) {
	if s.there {
		return d.exec(ctx, d.sql.save, append(s.row(), []byte(s.name), s.version)...)
	}
	// Versions have the time in them, so that no two rows of one name ever have the same one.
	args := append([]any{[]byte(s.name), s.now}, s.row()...)
	out, err := d.exec(ctx, d.sql.add, append(args, s.floor)...)
	if code(err) == duplicateKey {
		return done{repeated: out.repeated}, nil
	}
	return out, err
}
