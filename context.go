package snib

// This file has the contexts that end with holds, and that carry holds for Reentrant.

import (
	"context"
	"slices"
)

// A scope is a context that ends with the first of its holds.
type scope struct {
	holds  []*hold
	cancel context.CancelCauseFunc
}

// newContext derives a context from parent that carries the hold and ends with it.
func newContext(parent context.Context, h *hold) (context.Context, *scope) {
	ctx, cancel := context.WithCancelCause(carry(parent, h))
	s := &scope{cancel: cancel}
	s.endWith(h)
	return ctx, s
}

// endWith makes the scope end with h, or at once if h has ended.
func (s *scope) endWith(h *hold) {
	c := h.locker.core
	c.mu.Lock()
	s.holds = append(s.holds, h)
	cause := h.cause
	if cause == nil {
		h.scopes = append(h.scopes, s)
	}
	c.mu.Unlock()
	if cause != nil {
		s.cancel(cause)
	}
}

// end ends the scope. If one of its holds is lost, the cause of that loss replaces cause.
func (s *scope) end(cause error) {
	for _, h := range s.holds {
		c := h.locker.core
		c.mu.Lock()
		if i := slices.Index(h.scopes, s); i >= 0 {
			h.scopes = slices.Delete(h.scopes, i, i+1)
		}
		if h.isLost() { // the loss is about to end the scope, too
			cause = h.cause
		}
		c.mu.Unlock()
	}
	s.cancel(cause)
}

// heldKey is the context key of the holds that a context carries.
type heldKey struct{}

// A carriedHold is an element of the list of holds that a context carries, innermost first.
type carriedHold struct {
	hold *hold
	next *carriedHold
}

// carry returns a context that carries h in addition to the holds of ctx.
func carry(ctx context.Context, h *hold) context.Context {
	outer, _ := ctx.Value(heldKey{}).(*carriedHold)
	return context.WithValue(ctx, heldKey{}, &carriedHold{hold: h, next: outer})
}
