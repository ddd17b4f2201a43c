package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/remotelock/wire"
)

// fence does not ask whether there is such a hold: one that has ended is refused only once a later
// hold has come, as at any other resource.
func (s *Service) fence(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Fence) error {
	m, err := markOf(p, msg)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(r.Context())
	defer cancel()
	a := Action{Verb: VerbAcquire, Op: OpFence, Name: msg.Resource, Token: msg.Token}
	err = s.begun(ctx, p, &a, func(ctx context.Context) error {
		if s.opts.Fence == nil {
			return wire.NewProblem(wire.ProblemPath, "this service guards no resources; docs/serve.md says how it would", 0)
		}
		return s.beside("the database of the marks", s.opts.Fence.Do(ctx, m, nil))
	})
	var refused *fence.RefusedError
	if errors.As(err, &refused) {
		w.Header().Set(fence.HeaderHighest, strconv.FormatUint(refused.Last.Token, 10))
		return s.fenced(refused)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// markOf returns the mark of the hold that a message names.
func markOf(p *Principal, msg *wire.Fence) (fence.Mark, error) {
	resource, err := storeName(p, msg.Resource)
	if err != nil {
		return fence.Mark{}, fmt.Errorf("resource: %w", err)
	}
	id, err := checkID(msg.ID)
	if err != nil {
		return fence.Mark{}, err
	}
	switch most := fence.ClockToken(); {
	case msg.Token == 0:
		return fence.Mark{}, invalidf("token: it is missing")
	case msg.Token > most:
		// A mark that is too great by mistake shuts everybody out until tokens have come that far.
		return fence.Mark{}, invalidf("token: it is above %d, so no hold has it", most)
	}
	return fence.Mark{Lock: resource, Token: msg.Token, Owner: driver.Digest(id.client)}, nil
}

// fenced returns the answer to a hold that a resource refuses.
func (s *Service) fenced(e *fence.RefusedError) *wire.Problem {
	kind := wire.ProblemStale
	detail := fmt.Sprintf("the resource has let in a later hold, with token %d: what was computed under token %d is out of date", e.Last.Token, e.Mark.Token)
	if errors.Is(e, fence.ErrConflict) {
		kind = wire.ProblemSameToken
		s.conflicts.printf("fence: %v", e) // worth an alarm, unless clients show a wrong id
		detail = fmt.Sprintf("the resource has let in another hold with token %d: the id is wrong, or the store of the lock has broken its promise", e.Last.Token)
	}
	return wire.NewProblem(kind, detail, 0)
}
