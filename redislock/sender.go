package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// A sender sends requests to the scripts that serve them. Those that come while another call for their slot is under way gather, and go
// together in the next one: the more there are, the less each costs. Calls for one slot follow each other, so a release never
// overtakes what it releases.
type sender struct {
	conn         Conn
	quick, trade *Script
	meta         func(slot uint16) string // the key of what the store knows of itself
	long         func(slot uint16) string // and of leases that outlast the floor of the grace
	floor, max   string                   // of the grace, or off; and of TTLs

	sick atomic.Bool // the last call was not answered

	idle   sync.Pool // of *flight
	orders sync.Pool // of *order
	mu     sync.Mutex
	lines  map[uint16]*line
}

// A line is the requests for one slot. It is guarded by sender.mu.
type line struct {
	slot    uint16
	flights int      // calls under way
	waiting []*order // for the next call
	vouched vouched
}

// A flight is a call, or two in one pipeline, and what it takes to make it.
type flight struct {
	orders       []*order
	simple, rest []*order // those for quickScript, releases first, and those for tradeScript
	limit        deadline
	keys, args   []string
}

// vouched says that a server was found, a moment ago, to be the one that wrote last.
type vouched struct {
	at  driver.Instant // our clock before it was asked
	now int64          // its own, in microseconds
	ttl time.Duration  // for TTLs no longer than this
}

// moment is for how long a server is taken for the one that it was found to be. None takes over, or restarts, in less.
const moment = 5 * time.Millisecond

// An order is one request and its answer.
type order struct {
	keys *[4]string
	code string // a, r: as quickScript knows them; the rest, and A for a that has more arguments, is for tradeScript
	args [6]string
	n    int // of args
	ttl  time.Duration

	doubt bool // an earlier try went unanswered, and may have been served

	sent    driver.Instant // before the call
	answer  string
	err     error
	awaited bool          // done is waited for
	done    chan struct{} // of one; made when it is first waited for
	lost    bool          // nobody waited for the answer, which may still come
	unsent  bool          // it was taken back before it was sent
}

// order returns an empty order.
func (s *sender) order() *order { return s.orders.Get().(*order) }

// recycle takes an order back whose answer has been read.
func (s *sender) recycle(o *order) {
	if !o.lost {
		*o = order{done: o.done}
		s.orders.Put(o)
	}
}

const (
	// maxOrders bounds a call: the server does nothing else meanwhile.
	maxOrders = 64

	// maxFlights is how many calls for one slot may be under way when there is a crowd: while the server serves one, the other is
	// written or read.
	maxFlights = 2
	crowd      = 8

	// patience is how long a lone caller whose context can't be cancelled, or a release, waits for an answer by itself. Then another
	// goroutine does, so that the caller hears of its context's end.
	patience = 250 * time.Millisecond

	// maxCall bounds a call that serves several callers.
	maxCall = 2 * time.Second
)

// send is do for a copy of an order.
func (s *sender) send(ctx context.Context, slot uint16, like *order) (answer string, err error) {
	o := s.order()
	defer s.recycle(o)
	o.keys, o.code, o.args, o.n = like.keys, like.code, like.args, like.n
	if err = s.do(ctx, slot, o); err != nil {
		return "", err // o may still be on its way
	}
	return o.answer, nil
}

// do sends an order and waits for the answer, or until ctx is done. In the second case the order may or may not reach the server.
func (s *sender) do(ctx context.Context, slot uint16, o *order) error {
	o.awaited = false
	s.mu.Lock()
	l := s.lines[slot]
	if l == nil {
		l = &line{slot: slot}
		s.lines[slot] = l
	}
	if l.flights == 0 && !s.sick.Load() && (o.code == "r" || o.code == "R" || ctx.Done() == nil) {
		l.flights++
		s.mu.Unlock()
		f := s.flight()
		f.orders = append(f.orders, o)
		s.call(f.soon(ctx), l, f) // without a word to another goroutine
		if s.next(l, f) {
			go s.run(l, f)
		}
		return o.err
	}
	if o.done == nil {
		o.done = make(chan struct{}, 1)
	}
	o.awaited = true
	l.waiting = append(l.waiting, o)
	start := l.flights == 0 || l.flights < maxFlights && len(l.waiting) >= crowd
	if start {
		l.flights++
	}
	s.mu.Unlock()
	if start {
		if f := s.flight(); s.next(l, f) {
			go s.run(l, f)
		}
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		o.unsent = s.remove(l, o)
		o.lost = !o.unsent
		return context.Cause(ctx)
	}
}

// remove takes an order back that is still waiting, and reports whether it was.
func (s *sender) remove(l *line, o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(l.waiting, o)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

func (s *sender) flight() *flight { return s.idle.Get().(*flight) }

// run makes calls until nothing is waiting.
func (s *sender) run(l *line, f *flight) {
	for more := true; more; more = s.next(l, f) {
		ctx, cancel := context.WithTimeout(context.Background(), maxCall)
		s.call(ctx, l, f)
		cancel()
	}
}

// next takes the orders for the next call, and reports whether there are any. If there are not, the flight is over.
func (s *sender) next(l *line, f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(l.waiting), maxOrders)
	f.orders = append(f.orders[:0], l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	if n > 0 {
		return true
	}
	l.flights--
	if l.flights == 0 && l.slot != 0 { // one of very many
		delete(s.lines, l.slot)
	}
	s.idle.Put(f)
	return false
}

// call makes the calls of a flight, and gives each order its answer.
func (s *sender) call(ctx context.Context, l *line, f *flight) {
	f.simple, f.rest = f.simple[:0], f.rest[:0]
	for _, o := range f.orders {
		if o.code == "r" {
			f.simple = append(f.simple, o)
		}
	}
	frees := len(f.simple)
	for _, o := range f.orders {
		switch o.code {
		case "r":
		case "a":
			f.simple = append(f.simple, o)
		default:
			f.rest = append(f.rest, o)
		}
	}
	sent := driver.Now()
	f.keys, f.args = f.keys[:0], f.args[:0]
	var calls [2]Call
	n := 0
	if len(f.simple) > 0 {
		calls[0], n = s.quickCall(l, f, frees, sent), 1
	}
	if len(f.rest) > 0 {
		calls[n] = s.tradeCall(l.slot, f)
		n++
	}
	replies := s.conn.Eval(ctx, calls[:n]...)
	s.sick.Store(replies[0].Err != nil)
	if len(f.simple) > 0 {
		s.vouch(l, &replies[0], len(f.simple), sent)
		deliver(f.simple, replies[0], sent)
	}
	if len(f.rest) > 0 {
		deliver(f.rest, replies[n-1], sent)
	}
}

// quickCall makes the call for the simple orders: releases first, as many as frees.
func (s *sender) quickCall(l *line, f *flight, frees int, now driver.Instant) Call {
	first := len(f.keys)
	f.keys = append(f.keys, s.meta(l.slot))
	released, taken := f.simple[:frees], f.simple[frees:]
	for _, o := range released {
		f.keys = append(f.keys, o.keys[0])
	}
	for _, o := range released {
		f.keys = append(f.keys, o.keys[1])
	}
	for _, o := range f.simple {
		f.keys = append(f.keys, o.keys[2])
	}
	for _, o := range taken {
		f.keys = append(f.keys, o.keys[0])
	}
	var longest time.Duration
	for _, o := range taken {
		f.keys = append(f.keys, o.keys[1])
		longest = max(longest, o.ttl)
	}
	s.mu.Lock()
	v := l.vouched
	s.mu.Unlock()
	from, until := "0", "0"
	if s.floor == noGrace {
		until = never
	} else if longest <= v.ttl && !v.at.IsZero() && now.Sub(v.at) < moment {
		from, until = strconv.FormatInt(v.now, 10), strconv.FormatInt(v.now+moment.Microseconds(), 10)
	}
	start := len(f.args)
	f.args = append(f.args, s.floor, s.max, from, until, strconv.Itoa(frees), strconv.Itoa(len(taken)))
	for _, o := range f.simple {
		f.args = append(f.args, o.args[:o.n]...)
	}
	f.args = append(f.args, millis(longest))
	return Call{s.quick, f.keys[first:], f.args[start:]}
}

// noGrace stands for the floor of the grace where there is none.
const noGrace = "off"

// never is a time of the server that does not come.
const never = "9000000000000000"

// tradeCall makes the call for the other orders.
func (s *sender) tradeCall(slot uint16, f *flight) Call {
	first, start := len(f.keys), len(f.args)
	f.keys = append(f.keys, s.meta(slot), s.long(slot))
	f.args = append(f.args, s.floor, s.max)
	for _, o := range f.rest {
		f.keys = append(f.keys, o.keys[:]...)
		f.args = append(append(f.args, o.code, strconv.Itoa(o.n)), o.args[:o.n]...)
	}
	return Call{s.trade, f.keys[first:], f.args[start:]}
}

// vouch takes what quickScript says of the server from the end of its reply to n orders.
func (s *sender) vouch(l *line, r *Reply, n int, sent driver.Instant) {
	if len(r.Lines) != n+1 {
		return
	}
	v := vouched{at: sent}
	var ms int64
	if _, err := fmt.Sscanf(r.Lines[n], "v %d %d", &v.now, &ms); err != nil {
		return
	}
	v.ttl = time.Duration(ms) * time.Millisecond
	r.Lines = r.Lines[:n]
	s.mu.Lock()
	l.vouched = v
	s.mu.Unlock()
}

// deliver gives orders their answers.
func deliver(orders []*order, r Reply, sent driver.Instant) {
	if r.Err == nil && len(r.Lines) != len(orders) {
		r.Err = answeredf("the script gave %d answers for %d requests", len(r.Lines), len(orders))
	}
	for i, o := range orders {
		o.sent, o.err = sent, r.Err
		if r.Err == nil {
			o.answer = r.Lines[i]
			if text, failed := strings.CutPrefix(o.answer, "x "); failed {
				o.err = &ReplyError{Text: text}
			}
		}
		if o.awaited {
			o.done <- struct{}{}
		}
	}
}

// soon returns ctx with a deadline of no more than patience. It has no timer: the connection keeps to it, or, where others share it,
// ctx itself ends the wait.
func (f *flight) soon(ctx context.Context) context.Context {
	f.limit = deadline{ctx, time.Now().Add(patience)}
	if set, ok := ctx.Deadline(); ok && set.Before(f.limit.at) {
		return ctx
	}
	return &f.limit
}

type deadline struct {
	context.Context
	at time.Time
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }
