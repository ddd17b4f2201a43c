package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/waiting"
)

// checkQuery refuses parameters of a request that its path does not have, or that are given twice.
func checkQuery(r *http.Request, known []string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalidf("the query in the URL is malformed")
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			return invalidf("the query has an unknown parameter; there are: %s", cmp.Or(strings.Join(known, ", "), "none"))
		}
		if !utf8.ValidString(all[0]) || strings.ContainsRune(all[0], 0) {
			return invalidf("%s: it must be UTF-8 without NUL", name)
		}
		if len(all) > 1 {
			return invalidf("%s: it is given %d times", name, len(all))
		}
	}
	return nil
}

// getLock answers with a [wire.Lock].
func (s *Service) getLock(w http.ResponseWriter, r *http.Request, p *Principal) error {
	named := r.URL.Query().Get("name")
	name, err := storeName(p, named)
	if err != nil {
		return err
	}
	return s.read(r, p, Action{Op: OpGet, Name: named}, func(ctx context.Context) error {
		ctx, cancel := bounded(ctx)
		defer cancel()
		st, err := s.driver.Status(ctx, name)
		if err != nil {
			return err
		}
		st = s.withWaiters(st)
		l := lockOf(p, st)
		if s.opts.Access.May(p, VerbAdmin, l.Name) {
			showIDs(&l, st)
		}
		return writeJSON(w, http.StatusOK, l)
	})
}

// read does an action that only reads.
func (s *Service) read(r *http.Request, p *Principal, a Action, do func(context.Context) error) error {
	a.Verb = VerbRead
	return s.begun(r.Context(), p, a, do)
}

// withWaiters returns a status with those that wait in this replica.
func (s *Service) withWaiters(st driver.Status) driver.Status {
	st.Waiters = append(slices.Clip(st.Waiters), s.waitersBehind(st)...)
	return st
}

// lockOf returns a status as p may see it, without ids.
func lockOf(p *Principal, st driver.Status) wire.Lock {
	l := wire.Lock{Name: strings.TrimPrefix(st.Name, p.Prefix), Mode: wire.ModeExclusive, Slots: st.Slots,
		Holders: []wire.Holder{}, Waiters: []wire.Waiter{}}
	switch {
	case st.Shared:
		l.Mode = wire.ModeShared
	case st.Slots > 0:
		l.Mode = wire.ModeSlots
	}
	for _, h := range st.Holders {
		l.Holders = append(l.Holders, toHolder(h))
	}
	for _, w := range st.Waiters {
		process := wire.ProcessOf(w.Holder)
		process.Kind = "" // it has no hold yet
		waited := int64(w.Waited / time.Millisecond)
		l.Waiters = append(l.Waiters, wire.Waiter{Shared: w.Shared, Process: process, Waited: waited})
	}
	return l
}

// showIDs adds the ids to a lock, for an administrator.
func showIDs(l *wire.Lock, st driver.Status) {
	for i, h := range st.Holders {
		l.Holders[i].ID = ClientID(h.ID)
	}
	for i, w := range st.Waiters {
		l.Waiters[i].ID = ClientID(w.ID)
	}
}

func toHolder(h driver.Holding) wire.Holder {
	to := wire.Holder{
		Token: h.Token, Process: wire.ProcessOf(h.Holder),
		Inherited: h.Inherited, Foreign: h.Foreign, Count: h.Count, Endless: h.Left == driver.NoExpiry,
	}
	if h.Held > 0 {
		to.Held = max(1, int64(h.Held/time.Millisecond))
	}
	if !to.Endless {
		to.Left = int64(h.Left / time.Millisecond)
	}
	for _, heir := range h.Heirs {
		to.Heirs = append(to.Heirs, wire.ProcessOf(heir))
	}
	return to
}

// waitersBehind returns those that wait in this replica, behind one that waits in the store.
func (s *Service) waitersBehind(st driver.Status) []driver.Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []driver.Waiting
	now := driver.Now()
	for i, p := range s.queues[st.Name] {
		isIn := func(w driver.Waiting) bool { return w.ID == p.req.ID }
		if p.state.GaveUp != waiting.Wanted || i == 0 && (slices.ContainsFunc(st.Waiters, isIn) || !p.state.Told) {
			continue
		}
		isHolder := func(h driver.Holding) bool { return h.ID == p.req.ID }
		if slices.ContainsFunc(st.Holders, isHolder) {
			continue // it has been granted just now
		}
		all = append(all, driver.Waiting{ID: p.req.ID, Shared: p.req.Shared, Holder: p.req.Holder, Waited: now.Sub(p.since)})
	}
	return all
}

// listLocks answers with a [wire.Page], or with all locks as lines.
func (s *Service) listLocks(w http.ResponseWriter, r *http.Request, p *Principal) error {
	values := r.URL.Query()
	limit, err := limitOf(values)
	if err != nil {
		return err
	}
	l := listing{prefix: values.Get("prefix"), after: values.Get("after"), state: values.Get("state"), limit: limit}
	switch {
	case l.state != "" && l.state != "held" && l.state != "waiting":
		return invalidf("state: it must be held or waiting")
	case len(p.Prefix)+len(l.prefix) > driver.MaxName || len(l.after) > driver.MaxName:
		return invalidf("prefix and after may be as long as a name, %d bytes", driver.MaxName)
	}
	return s.read(r, p, Action{Op: OpList, Name: l.prefix, List: true}, func(ctx context.Context) error {
		if strings.Contains(r.Header.Get("Accept"), wire.TypeLines) {
			return s.writeLines(ctx, w, p, l)
		}
		return s.writePage(ctx, w, p, l)
	})
}

// A listing says which locks are listed.
type listing struct {
	prefix, after, state string
	limit                int
}

// has reports whether a lock is listed.
func (l listing) has(st driver.Status) bool {
	switch l.state {
	case "held":
		return len(st.Holders) > 0
	case "waiting":
		return len(st.Waiters) > 0
	}
	return true
}

// each calls yield for the locks that p may see.
func (s *Service) each(ctx context.Context, p *Principal, l listing, yield func(driver.Status) bool) error {
	return s.driver.List(ctx, p.Prefix+l.prefix, func(st driver.Status) bool {
		name := strings.TrimPrefix(st.Name, p.Prefix)
		if name <= l.after && l.after != "" || !l.has(st) || !s.opts.Access.May(p, VerbRead, name) {
			return true
		}
		return yield(st)
	})
}

// writePage reads the whole list and keeps the first locks in the order of their names, because
// most stores have no order.
func (s *Service) writePage(ctx context.Context, w http.ResponseWriter, p *Principal, l listing) error {
	var first []driver.Status
	trim := func() {
		slices.SortFunc(first, func(a, b driver.Status) int { return strings.Compare(a.Name, b.Name) })
		// A store that is being reorganised may show a lock twice.
		first = slices.CompactFunc(first, func(a, b driver.Status) bool { return a.Name == b.Name })
		first = first[:min(len(first), l.limit+1)]
	}
	err := s.each(ctx, p, l, func(st driver.Status) bool {
		if first = append(first, st); len(first) > 2*l.limit+2 {
			trim()
		}
		return true
	})
	if err != nil {
		return err
	}
	trim()
	page := wire.Page{Locks: []wire.Lock{}}
	for i, st := range first {
		if i == l.limit {
			page.After = page.Locks[i-1].Name
			break
		}
		page.Locks = append(page.Locks, lockOf(p, s.withWaiters(st)))
	}
	return writeJSON(w, http.StatusOK, page)
}

// writeLines writes each lock on a line of its own, as the store lists it. If the list fails in
// the middle, the connection is closed without the end that HTTP demands.
func (s *Service) writeLines(ctx context.Context, w http.ResponseWriter, p *Principal, l listing) error {
	lines := json.NewEncoder(w)
	started := false
	var failed error
	err := s.each(ctx, p, l, func(st driver.Status) bool {
		if !started {
			started = true
			w.Header().Set("Content-Type", wire.TypeLines)
			w.WriteHeader(http.StatusOK)
		}
		limitWrite(w)
		failed = lines.Encode(lockOf(p, s.withWaiters(st)))
		liftWrite(w)
		return failed == nil && ctx.Err() == nil
	})
	switch {
	case started && errors.Join(err, failed, ctx.Err()) != nil:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case !started:
		w.Header().Set("Content-Type", wire.TypeLines)
		w.WriteHeader(http.StatusOK)
	}
	return nil
}

// getAudit answers with a [wire.Audit].
func (s *Service) getAudit(w http.ResponseWriter, r *http.Request, p *Principal) error {
	limit, err := limitOf(r.URL.Query())
	if err != nil {
		return err
	}
	return s.begun(r.Context(), p, Action{Verb: VerbAdmin, Op: OpAudit, List: true}, func(context.Context) error {
		if s.opts.Audit == nil {
			return wire.NewProblem(wire.ProblemPath, "this service keeps no audit log", 0)
		}
		return writeJSON(w, http.StatusOK, wire.Audit{Events: s.opts.Audit(p, limit)})
	})
}

// limitOf returns the number of things that a request asks for at most.
func limitOf(values url.Values) (int, error) {
	text := values.Get("limit")
	if text == "" {
		return 100, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > wire.MaxPage {
		return 0, invalidf("limit: it must be a number from 1 to %d", wire.MaxPage)
	}
	return limit, nil
}

// getStore answers with a [wire.Store].
func (s *Service) getStore(w http.ResponseWriter, r *http.Request, p *Principal) error {
	return s.read(r, p, Action{Op: OpStore}, func(ctx context.Context) error {
		id, err := s.storeID(ctx)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, wire.Store{
			API: wire.Version, Program: wire.ProgramVersion(), ID: id, Backend: s.info.Backend, Fencing: s.info.Fencing.String(),
			Shared: s.info.Shared, Slots: s.info.Slots,
			MinTTL: wire.Millis(s.info.MinTTL), MaxTTL: int64(s.info.MaxTTL / time.Millisecond),
			MaxWait: wire.Millis(s.opts.MaxWait), PlaceTimeout: wire.Millis(s.opts.PlaceTimeout),
			Assumptions: append([]string{}, s.info.Assumptions...), Unmet: s.info.Unmet,
		})
	})
}
