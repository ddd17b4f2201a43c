package serve

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// This file has what a client asks for a hold that it has. A replica keeps nothing of holds: a
// request names the lease by its id, and the store compares and acts in one step.

// A ref names a hold, as a client does.
type ref struct {
	name string // in the store
	id   grantID
}

// A grant is a lease, with what the answer to its client says of it. Its TTL is never zero.
type grant struct {
	driver.Lease
	said driver.Grant
}

// newGrant returns a lease that the store has granted to a request.
func newGrant(req driver.Request, granted driver.Lease) *grant {
	g := granted.Grant()
	g.TTL = cmp.Or(g.TTL, req.TTL)
	return &grant{granted, g}
}

// findIn returns the first hold of a lock that is the one. If there is none, the error matches
// ErrLost.
func findIn(st driver.Status, isOne func(driver.Holding) bool) (driver.Holding, error) {
	if i := slices.IndexFunc(st.Holders, isOne); i >= 0 {
		return st.Holders[i], nil
	}
	return driver.Holding{}, driver.ErrLost
}

// lease returns the lease of a hold. The store is asked for its id only if the client names it by
// the id of its request, and not by that of the answer. If there is no such hold then, or its
// replica may still give it up, the error matches ErrLost.
func (s *Service) lease(ctx context.Context, r ref, ttl time.Duration) (driver.Lease, error) {
	id := r.id.String()
	if r.id.nonce == "" {
		st, err := s.driver.Status(ctx, r.name)
		if err != nil {
			return nil, err
		}
		h, err := findIn(st, r.id.isFinal)
		if err != nil {
			return nil, err
		}
		id = h.ID
	}
	return s.driver.Lease(r.name, id, ttl), nil
}

// A renewal is a hold that is to be renewed.
type renewal struct {
	ref
	ttl   time.Duration
	end   func(Outcome) // of the Authorizer, or nil
	lease driver.Lease
	err   error
}

// maxLookups is how many holds of one batch are looked up at a time.
const maxLookups = 64

// renewAll renews the holds that have no error yet, together, and notes the error of each.
func (s *Service) renewAll(ctx context.Context, all []renewal) {
	var finding sync.WaitGroup
	slots := make(chan struct{}, maxLookups)
	for i := range all {
		r := &all[i]
		if r.err != nil {
			continue
		}
		slots <- struct{}{}
		finding.Go(func() {
			defer func() { <-slots }()
			r.lease, r.err = s.lease(ctx, r.ref, r.ttl)
		})
	}
	finding.Wait()
	var leases []driver.Lease
	var due []*renewal
	for i := range all {
		if r := &all[i]; r.err == nil {
			leases, due = append(leases, r.lease), append(due, r)
		}
	}
	if len(due) == 0 {
		return
	}
	for i, answer := range s.driver.Renew(ctx, leases) {
		due[i].err = answer.Err
	}
}
