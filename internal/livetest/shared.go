package livetest

import (
	"errors"
	"sync"
	"testing"
)

// Shared is a server, or several, that the tests of a package share. The first test that needs it
// starts it, and [Main] ends it after the last test. No test may break it, change its settings, or
// count what it does.
type Shared[T any] struct {
	once       sync.Once
	value      T
	err        error
	end, ended chan struct{} // nil if it was not started
}

// Get returns the server, which start starts. If it can't be started, t fails; if it is not
// installed, t is skipped like a test that starts a server of its own.
func (s *Shared[T]) Get(t testing.TB, start func(testing.TB) T) T {
	t.Helper()
	s.once.Do(func() {
		started, ended := make(chan struct{}), make(chan struct{})
		s.end, s.ended = make(chan struct{}), ended
		go func() {
			defer close(ended)
			s.err = Outside(func(t testing.TB) error {
				s.value = start(t)
				close(started)
				<-s.end
				return nil
			})
		}()
		select {
		case <-started:
		case <-ended:
		}
	})
	if missing, ok := errors.AsType[*MissingError](s.err); ok {
		Missing(t, missing.Server, missing.Why)
	}
	Must(t, s.err, "start a server that tests share")
	return s.value
}

// End ends what was started.
func (s *Shared[T]) End() {
	if s.end != nil {
		close(s.end)
		<-s.ended
	}
}
