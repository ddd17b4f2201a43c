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
	once  sync.Once
	value T
	err   error
}

// atEnd has what Main does after the last test.
var atEnd struct {
	sync.Mutex
	funcs []func()
}

// Get returns the server, which start starts. If it can't be started, t fails; if it is not
// installed, t is skipped like a test that starts a server of its own.
func (s *Shared[T]) Get(t testing.TB, start func(testing.TB) T) T {
	t.Helper()
	s.once.Do(func() {
		started, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			s.err = Outside(func(t testing.TB) error {
				s.value = start(t)
				close(started)
				<-end
				return nil
			})
		}()
		select {
		case <-started:
		case <-ended:
			return
		}
		atEnd.Lock()
		defer atEnd.Unlock()
		atEnd.funcs = append(atEnd.funcs, func() { close(end); <-ended })
	})
	if missing, ok := errors.AsType[*MissingError](s.err); ok {
		Missing(t, missing.Server, missing.Why)
	}
	if s.err != nil {
		t.Fatalf("start a server that tests share: %v", s.err)
	}
	return s.value
}

// endShared ends what tests have shared.
func endShared() {
	atEnd.Lock()
	defer atEnd.Unlock()
	for _, f := range atEnd.funcs {
		f()
	}
	atEnd.funcs = nil
}
