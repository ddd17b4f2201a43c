package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sniblock/snib/remotelock/wire"
)

// checkInterval is how long the result of a check of the whole store is used: checks are costly.
const checkInterval = 10 * time.Second

// A check is a costly check of the store, whose last result is kept. It is safe for concurrent use.
type check[T any] struct {
	turn chan struct{} // has room for one, who makes the check
	at   time.Time
	last T
}

func newCheck[T any]() check[T] { return check[T]{turn: make(chan struct{}, 1)} }

// get returns the last result, or makes the check if that is too old.
func (c *check[T]) get(ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if !c.at.IsZero() && time.Since(c.at) < checkInterval {
		return c.last, nil
	}
	result, err := do(ctx)
	if err != nil {
		return none, err
	}
	c.at, c.last = time.Now(), result
	return result, nil
}

func (s *Service) getDoctor(w http.ResponseWriter, r *http.Request, p *Principal) error {
	return s.begun(r.Context(), p, &Action{Verb: VerbAdmin, Op: OpDoctor}, func(ctx context.Context) error {
		switch {
		case s.opts.Doctor == nil:
			return errNoPath()
		case p.Prefix != "" || !s.opts.Access.May(p, VerbAdmin, ""): // an Authorizer that does not look at Op
			return wire.NewProblem(wire.ProblemForbidden, "this is about all locks of the store, outside of namespaces", 0)
		}
		found, err := s.doctor.get(ctx, s.opts.Doctor)
		if err != nil {
			return s.beside("the check of the store", err)
		}
		return writeJSON(w, http.StatusOK, wire.Diagnosis{Findings: append([]wire.Finding{}, found...)})
	})
}

// getLeaks answers with the leaks of the locks that p may see.
func (s *Service) getLeaks(w http.ResponseWriter, r *http.Request, p *Principal) error {
	a := Action{Verb: VerbRead, Op: OpLeaks, List: true}
	return s.begun(r.Context(), p, &a, func(ctx context.Context) error {
		if s.opts.Leaks == nil {
			return errNoPath()
		}
		found, err := s.leaks.get(ctx, s.opts.Leaks)
		if err != nil {
			return s.beside("the search for leaks", err)
		}
		answer := wire.Leaks{Leaks: []wire.Leak{}}
		for _, l := range found {
			name, ok := strings.CutPrefix(l.Name, p.Prefix)
			if ok && s.opts.Access.May(p, VerbRead, name) {
				l.Name = name
				answer.Leaks = append(answer.Leaks, l)
			}
		}
		if err := s.checkRights(ctx, p, &a); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, answer)
	})
}
