package sqlitelock

import (
	"io"
	"sync"
)

// A bell wakes the requests at the heads of queues when a lock becomes free and no byte is
// unlocked: the lease is detached, and so has none, or another process than that of the lease has
// ended it. Within the process it rings for one name. To other processes it can't say which name it
// is, so it wakes all their heads, which then look again. It rings for them only if one waits.
type bell struct {
	path string // of the sidecar, whose time of change is the signal to other processes

	mu    sync.Mutex
	heads map[string]map[chan struct{}]bool // by name
	ear   io.Closer                         // nil if we don't listen
	tried bool                              // to listen
}

// add has the hint, a channel with room for one, sent to when the bell rings for a name.
func (b *bell) add(name string, hint chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heads == nil {
		b.heads = make(map[string]map[chan struct{}]bool)
	}
	if b.heads[name] == nil {
		b.heads[name] = make(map[chan struct{}]bool)
	}
	b.heads[name][hint] = true
}

// remove undoes add.
func (b *bell) remove(name string, hint chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.heads[name], hint)
	if len(b.heads[name]) == 0 {
		delete(b.heads, name)
	}
}

// ring wakes the heads of a name in this process and, with everywhere set, the heads of other
// processes.
func (b *bell) ring(name string, everywhere bool) {
	b.mu.Lock()
	for hint := range b.heads[name] {
		notify(hint)
	}
	b.mu.Unlock()
	if everywhere {
		signalChange(b.path) //nolint:errcheck // the waiters check by themselves once a second
	}
}

// listen wakes the heads of this process when another one rings. It reports whether it has begun to
// do so: what was read before may have changed meanwhile.
func (b *bell) listen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tried {
		return false
	}
	b.tried = true
	ear, err := watchChanges(b.path)
	if err != nil {
		return false // the waiters check by themselves once a second
	}
	b.ear = ear
	go b.hear(ear)
	return true
}

// hear waits for signals until the bell is closed.
func (b *bell) hear(ear io.Reader) {
	for events := make([]byte, 4096); ; {
		if _, err := ear.Read(events); err != nil {
			return
		}
		b.mu.Lock()
		for _, hints := range b.heads {
			for hint := range hints {
				notify(hint)
			}
		}
		b.mu.Unlock()
	}
}

// close stops to listen.
func (b *bell) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried = true
	if b.ear == nil {
		return nil
	}
	return b.ear.Close()
}

// notify sends to a channel with room for one.
func notify(hint chan struct{}) {
	select {
	case hint <- struct{}{}:
	default: // it has one already
	}
}
