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

func (s *Service) getLock(w http.ResponseWriter, r *http.Request, p *Principal) error {
	named := r.URL.Query().Get("name")
	name, err := storeName(p, named)
	if err != nil {
		return err
	}
	return s.read(r, p, &Action{Op: OpGet, Name: named}, func(ctx context.Context) error {
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
func (s *Service) read(r *http.Request, p *Principal, a *Action, do func(context.Context) error) error {
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
		l.Holders[i].ID = parseID(h.ID).client
	}
	for i, w := range st.Waiters {
		l.Waiters[i].ID = parseID(w.ID).client
	}
}

func toHolder(h driver.Holding) wire.Holder {
	to := wire.Holder{
		Token: h.Token, Process: wire.ProcessOf(h.Holder),
		Inherited: h.Inherited, Foreign: h.Foreign, Unsure: h.Foreign != "" && h.ID == "", Count: h.Count,
		Endless: h.Left == driver.NoExpiry,
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

// listLocks answers with each lock that p may see on a line of its own, as the store lists them. If
// the list fails in the middle, the connection is closed without the end that HTTP demands.
func (s *Service) listLocks(w http.ResponseWriter, r *http.Request, p *Principal) error {
	prefix := r.URL.Query().Get("prefix")
	if err := checkPrefix(p, prefix); err != nil {
		return err
	}
	a := Action{Verb: VerbRead, Op: OpList, Name: prefix, List: true}
	return s.begun(r.Context(), p, &a, func(ctx context.Context) error {
		started := false
		start := func() {
			if !started {
				started = true
				w.Header().Set("Content-Type", wire.TypeLines)
				w.WriteHeader(http.StatusOK)
			}
		}
		var failed error
		err := s.driver.List(ctx, p.Prefix+prefix, func(st driver.Status) bool {
			if !s.opts.Access.May(p, VerbRead, strings.TrimPrefix(st.Name, p.Prefix)) {
				return true
			}
			start()
			limitWrite(w)
			failed = json.NewEncoder(w).Encode(lockOf(p, s.withWaiters(st)))
			liftWrite(w)
			return failed == nil && ctx.Err() == nil
		})
		if err == nil {
			err = s.checkRights(ctx, p, &a)
		}
		switch {
		case started && errors.Join(err, failed, ctx.Err()) != nil:
			panic(http.ErrAbortHandler)
		case err == nil:
			start() // there was no lock
		}
		return err
	})
}

// checkRights reports that p may not do an action any more that has listed locks. The list lacks
// those that p might not read at the time, and would look complete.
func (s *Service) checkRights(ctx context.Context, p *Principal, a *Action) error {
	return s.begun(ctx, p, a, func(context.Context) error { return nil })
}

// checkPrefix reports a prefix with which no name can begin.
func checkPrefix(p *Principal, prefix string) error {
	return checkText("prefix", prefix, driver.MaxName-len(p.Prefix))
}

// maxAudit is how many events an answer about the audit log has at most.
const maxAudit = 1000

func (s *Service) getAudit(w http.ResponseWriter, r *http.Request, p *Principal) error {
	limit := 100
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxAudit {
			return invalidf("limit: it must be a number from 1 to %d", maxAudit)
		}
	}
	return s.begun(r.Context(), p, &Action{Verb: VerbAdmin, Op: OpAudit, List: true}, func(context.Context) error {
		if s.opts.Audit == nil {
			return wire.NewProblem(wire.ProblemPath, "this service keeps no audit log", 0)
		}
		return writeJSON(w, http.StatusOK, wire.Audit{Events: append([]wire.AuditEvent{}, s.opts.Audit(p, limit)...)})
	})
}

func (s *Service) getStore(w http.ResponseWriter, r *http.Request, p *Principal) error {
	return s.read(r, p, &Action{Op: OpStore}, func(ctx context.Context) error {
		id, err := s.storeID(ctx)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, wire.Store{
			API: wire.Version, Program: wire.ProgramVersion(), ID: id, Backend: s.info.Backend, Fencing: s.info.Fencing.String(),
			Shared: s.info.Shared, Slots: s.info.Slots,
			MinTTL: wire.Millis(s.info.MinTTL), MaxTTL: int64(s.info.MaxTTL / time.Millisecond),
			MaxWait: wire.Millis(s.opts.limits.wait), PlaceTimeout: wire.Millis(s.opts.limits.placeTimeout),
			Assumptions: append([]string{}, s.info.Assumptions...), Unmet: s.info.Unmet,
		})
	})
}
