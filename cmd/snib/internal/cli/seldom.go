package cli

import (
	"sync"
	"time"
)

// seldomInterval is how long a seldom keeps a subject quiet.
const seldomInterval = time.Minute

// A seldom bounds what is printed about each subject. It is safe for concurrent use.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time // of the subjects that were printed less than seldomInterval ago
}

// allows reports whether something may be printed about a subject, and counts it.
func (s *seldom) allows(subject string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, at := range s.last {
		if now.Sub(at) >= seldomInterval {
			delete(s.last, other)
		}
	}
	if _, ok := s.last[subject]; ok {
		return false
	}
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	s.last[subject] = now
	return true
}
