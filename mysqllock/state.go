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

// An entry is one holder or waiter. Times are microseconds of the server's clock. The token and
// the times of an exclusive holder are stored in columns of their own, so that one statement can
// change them.
type entry struct {
	Owner   string `json:"owner"`
	Nonce   string `json:"-"` // of the attempt that made it, unique; stored before the object
	Shared  bool   `json:"shared,omitempty"`
	Tell    bool   `json:"tell,omitempty"`    // the holder wants to know when another process waits
	Kept    bool   `json:"kept,omitempty"`    // released, but kept until MinHold has passed
	Session string `json:"session,omitempty"` // the lock that its session holds

	Token  uint64 `json:"token,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	TTL    int64  `json:"ttl,omitempty"` // of the request
	Since  int64  `json:"since,omitempty"`
	Until  int64  `json:"until,omitempty"` // not of waiters: see reapDead

	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`
}

// process returns the id of the driver that made the entry.
func (e *entry) process() string {
	id, _, _ := strings.Cut(e.Nonce, "-")
	return id
}

func (e *entry) holder() driver.Holder {
	return driver.Holder{Host: e.Host, PID: e.PID, Label: e.Label}
}

// encode returns the entry as a line of a column.
func (e *entry) encode() []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // all of its fields can be encoded
	}
	return slices.Concat([]byte(e.Nonce), []byte(" "), text, []byte("\n"))
}

func encodeEntries(all []entry) []byte {
	out := []byte{}
	for _, e := range all {
		out = append(out, e.encode()...)
	}
	return out
}

// parseEntries parses the lines of a column.
func parseEntries(text []byte) ([]entry, error) {
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

// tooHigh is the least token that the driver does not compute with: acquireFast doubles it.
const tooHigh = 1 << 62

// A state is a row at the time now, without the holders that had ended by then.
type state struct {
	name      string
	exists    bool // the table has the row
	version   int64
	token     uint64 // the last one that was issued
	slots     int
	holders   []entry
	waiters   []entry // including dead ones, until reapDead removes them
	malformed error   // why the row can't be used; nil if it is well-formed
	// Former holders that have not ended by the server's clock, but were not renewed for a whole
	// TTL by our clock.
	unchanged    []entry
	signaled     string // the driver whose waiter should run a round; column called
	reaped       bool   // dead waiters were removed, so it differs from the row
	maybeWritten bool   // an earlier try to write our change may have succeeded

	now   int64
	floor int64          // tokens of new rows are greater
	start driver.Instant // our clock before the row was read
}

// scanState scans the columns of the statements read and list. If the row is malformed, the state
// has neither holders nor waiters, and malformed is the reason.
func (d *Driver) scanState(rows *sql.Rows) (s state, err error) {
	var name, called sql.NullString
	var version, token, slots, since, ends sql.NullInt64
	var held, kept sql.NullInt64
	var holder, holders, waiters []byte
	if err := rows.Scan(&s.floor, &s.now, &name, &version, &token, &slots, &held, &kept, &since, &ends, &holder, &holders,
		&waiters, &called); err != nil {
		return s, err
	}
	s.name, s.exists, s.version, s.token = name.String, name.Valid, version.Int64, uint64(token.Int64)
	s.slots, s.signaled = int(slots.Int64), called.String
	exclusive := entry{Token: uint64(held.Int64), Kept: kept.Int64 == 1, Since: since.Int64, Until: ends.Int64}
	err = s.parse(exclusive, holder, holders, waiters)
	if !s.exists && s.floor >= tooHigh {
		s.malformed = d.rowError("", parseError{fmt.Errorf("its token %d is too high", s.floor)})
	}
	if kept.Int64 != 0 && kept.Int64 != 1 {
		err = parseError{fmt.Errorf("kept is %d, and has to be 0 or 1", kept.Int64)}
	}
	if err != nil {
		s.holders, s.waiters, s.malformed = nil, nil, d.rowError(s.name, err)
	}
	return s, nil
}

// parse parses the columns for holders and waiters. If exclusive has a token, there is an exclusive
// holder: exclusive has its token and times, and the line holder has the rest.
func (s *state) parse(exclusive entry, holder, holders, waiters []byte) (err error) {
	if s.token >= tooHigh {
		return parseError{fmt.Errorf("its token %d is too high", int64(s.token))}
	}
	if s.waiters, err = parseEntries(waiters); err != nil {
		return parseError{fmt.Errorf("its waiters can't be read: %w", err)}
	}
	if s.holders, err = parseEntries(holders); err != nil {
		return parseError{fmt.Errorf("its holders can't be read: %w", err)}
	}
	if exclusive.Token != 0 {
		if s.holders, err = parseEntries(holder); err != nil || len(s.holders) != 1 {
			return parseError{fmt.Errorf("its holder can't be read: %w", cmp.Or(err, error(driver.Sentinel("there is a token and no holder"))))}
		}
		h := &s.holders[0]
		h.Token, h.Kept, h.Since, h.Until = exclusive.Token, exclusive.Kept, exclusive.Since, exclusive.Until
	}
	s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return h.Until <= s.now })
	for _, h := range s.holders {
		if len(h.Session) > longestKey { // the server would refuse to look for it
			return parseError{fmt.Errorf("the session of a holder has %d bytes, and %d are allowed", len(h.Session), longestKey)}
		}
	}
	return nil
}

// args returns the state as arguments of the statements save and insert.
func (s *state) args() []any {
	var held, since, ends int64
	var kept bool
	holder, holders := []byte{}, encodeEntries(s.holders)
	if len(s.holders) == 1 && !s.holders[0].Shared && s.slots == 0 {
		h := s.holders[0]
		held, kept, since, ends = int64(h.Token), h.Kept, h.Since, h.Until
		h.Token, h.Kept, h.Since, h.Until = 0, false, 0, 0
		holder, holders = h.encode(), []byte{}
	}
	var called any
	if s.signaled != "" {
		called = []byte(s.signaled)
	}
	return []any{int64(s.token), s.slots, held, kept, since, ends, holder, holders, encodeEntries(s.waiters), called, s.now}
}

// holderFor returns the entry by which req's owner holds the lock already, or nil.
func (s *state) holderFor(req driver.Request) *entry {
	for i, h := range s.holders {
		if h.Owner == req.Owner && h.Shared == req.Shared && !h.Kept && s.slots == req.Slots {
			return &s.holders[i]
		}
	}
	return nil
}

// holderByToken returns the holder with this token, or nil.
func (s *state) holderByToken(token uint64) *entry {
	for i, h := range s.holders {
		if h.Token == token && !h.Kept {
			return &s.holders[i]
		}
	}
	return nil
}

// removeHolder removes the holder with this token.
func (s *state) removeHolder(token uint64) {
	s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return h.Token == token })
}

// fits reports whether the kind of req is allowed for the name at present.
func (s *state) fits(req driver.Request) bool {
	return s.slots == req.Slots || len(s.holders)+len(s.waiters) == 0
}

// refusal returns the reason why a request was not granted in this state.
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

// position returns how many waiters are ahead of the one with this nonce, whether that one can be
// granted, and if not, after which delay the state may change by itself. If there is no such
// waiter, place is -1, and the rest is for a newcomer at the end of the queue.
func (s *state) position(nonce string, shared bool) (place int, grantable bool, delay time.Duration) {
	ahead, exclusive := len(s.holders), false
	firstEnd := s.now + time.Hour.Microseconds()
	for _, h := range s.holders {
		exclusive = exclusive || !h.Shared
		firstEnd = min(firstEnd, h.Until)
	}
	place = -1
	for i, w := range s.waiters {
		if w.Nonce == nonce {
			place, shared = i, w.Shared
			break
		}
		ahead++
		exclusive = exclusive || !w.Shared
	}
	grantable = ahead == 0 || shared && !exclusive
	if s.slots > 0 {
		grantable = ahead < s.slots
	}
	return place, grantable, time.Duration(firstEnd-s.now) * time.Microsecond
}

// signalFirst signals the driver of the first waiter if that waiter can be granted. If it can't,
// no waiter behind it can; if it can, its grant signals the next one.
func (s *state) signalFirst() {
	s.signaled = ""
	if len(s.waiters) == 0 {
		return
	}
	if _, grantable, _ := s.position(s.waiters[0].Nonce, false); grantable {
		s.signaled = s.waiters[0].process()
	}
}

// othersWait reports whether a waiter belongs to another driver than the one with this id.
func (s *state) othersWait(id string) bool {
	return slices.ContainsFunc(s.waiters, func(w entry) bool { return w.process() != id })
}

// status describes the state for people. It reports at most maxLeft as the remaining time of a
// holder, because entries of sessions have no end of their own.
func (s *state) status(maxLeft time.Duration) driver.Status {
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
			Owner: h.Owner, Token: h.Token, Holder: h.holder(), Held: between(h.Since, s.now), Left: min(maxLeft, between(s.now, h.Until)),
		})
	}
	for _, w := range s.waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: w.Owner, Shared: w.Shared, Holder: w.holder(), Waited: between(w.Since, s.now),
		})
	}
	return st
}

// read reads the states of names. Names without a row are missing from the result, unless it is
// the only name.
func (d *Driver) read(ctx context.Context, all []string) (map[string]*state, error) {
	found := map[string]*state{}
	for chunk := range slices.Chunk(all, batchSizes[len(batchSizes)-1]) {
		n := batchSize(len(chunk))
		start := driver.Now()
		err := d.query(ctx, expandNames(d.sql.read, n), nameArgs(chunk, n), func(rows *sql.Rows) error {
			s, err := d.scanState(rows)
			s.start = start
			if s.name == "" && len(all) == 1 {
				s.name = all[0] // no row has the name: only the clock and the floor are known
			}
			found[s.name] = &s
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 1 && found[all[0]] == nil { // not even the row with the empty name exists
		d.store.ready.Store(false) // so that the next round fills the table
		return nil, fmt.Errorf("%w: table %s: %w", driver.ErrUnavailable, d.conf.table, errEmpty)
	}
	return found, d.reapDead(ctx, found)
}

// rowMutexes serialize the goroutines of one process that want to change the same row: if they
// raced, all but one would fail. Several names may share a mutex.
type rowMutexes [64]semaphore

func (l *rowMutexes) init() {
	for i := range l {
		l[i] = make(semaphore, 1)
	}
}

// lock locks the mutex of a name, and returns a function that unlocks it.
func (l *rowMutexes) lock(ctx context.Context, name string) (unlock func(), err error) {
	return l[crc32.ChecksumIEEE([]byte(name))%uint32(len(l))].enter(ctx)
}

// change reads a row, lets fn change its state, and writes the state if fn says so. If the row
// was changed in between, it repeats all of that.
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
		found, err := d.read(ctx, []string{name})
		if err != nil {
			return err
		}
		s := found[name]
		if s.malformed != nil {
			return s.malformed
		}
		s.maybeWritten = maybeWritten
		write, err := fn(s)
		if err != nil || !write {
			return err
		}
		res, err := d.save(ctx, s)
		if err != nil || res.rows == 1 {
			return d.rowError(name, err)
		}
		maybeWritten = maybeWritten || res.repeated
		if err := backOff(ctx, try); err != nil {
			return err
		}
	}
}

// save writes a state, unless the row has changed since it was read.
func (d *Driver) save(ctx context.Context, s *state) (execResult, error) {
	if s.exists {
		return d.exec(ctx, d.sql.save, append(s.args(), []byte(s.name), s.version)...)
	}
	// Versions contain the time, so that no two rows of one name ever have the same version.
	args := append([]any{[]byte(s.name), s.now}, s.args()...)
	res, err := d.exec(ctx, d.sql.insert, append(args, s.floor)...)
	if code(err) == duplicateKey {
		return execResult{repeated: res.repeated}, nil
	}
	return res, err
}
