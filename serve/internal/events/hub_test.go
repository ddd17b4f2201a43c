package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
)

// A fakeStore has locks, and counts how often it is listed.
type fakeStore struct {
	mu    sync.Mutex
	locks map[string]driver.Status
	lists int
	took  time.Duration
	err   error
}

func (f *fakeStore) list(_ context.Context, yield func(driver.Status) bool) error {
	f.mu.Lock()
	took := f.took
	f.mu.Unlock()
	time.Sleep(took) // fake time
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	for _, st := range f.locks {
		if !yield(st) {
			break
		}
	}
	return f.err
}

// set changes the store.
func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeStore) put(st driver.Status) { f.set(func() { f.locks[st.Name] = st }) }
func (f *fakeStore) remove(name string)   { f.set(func() { delete(f.locks, name) }) }
func (f *fakeStore) fail(err error)       { f.set(func() { f.err = err }) }

func (f *fakeStore) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// held returns a lock that is held.
func held(name string, token uint64, waiters ...string) driver.Status {
	st := driver.Status{Name: name, Holders: []driver.Holding{{ID: fmt.Sprint("o", token), Token: token}}}
	for _, w := range waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{ID: w})
	}
	return st
}

// bubble runs a test with a hub in a bubble of fake time.
func bubble(t *testing.T, took time.Duration, test func(t *testing.T, f *fakeStore, h *Hub)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{locks: map[string]driver.Status{}, took: took}
		var running sync.WaitGroup
		stop := make(chan struct{})
		test(t, f, NewHub(f.list, time.Second, running.Go, stop))
		close(stop)
		running.Wait()
	})
}

func next(t *testing.T, l *Listener) Batch {
	t.Helper()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// text returns what a batch says.
func text(b Batch) string {
	s := ""
	if b.Reset {
		s = "reset"
		for _, l := range b.Locks {
			s += " " + l.Name
		}
	}
	for _, e := range b.Events {
		s += fmt.Sprintf("%s %s %d; ", e.Kind, e.Lock.Name, e.Hold.Token)
	}
	return s
}

// TestEvents checks what a listener learns from one snapshot to the next.
func TestEvents(t *testing.T) {
	tests := []struct {
		name          string
		before, after []driver.Status
		want          string
	}{
		{"Nothing", []driver.Status{held("a", 1)}, []driver.Status{held("a", 1)}, ""},
		{"Acquired", nil, []driver.Status{held("a", 1)}, "acquired a 1; "},
		{"Released", []driver.Status{held("a", 1)}, nil, "released a 1; "},
		{"HandedOver", []driver.Status{held("a", 1, "w")}, []driver.Status{held("a", 2)}, "released a 1; acquired a 2; "},
		{"Waiter", []driver.Status{held("a", 1)}, []driver.Status{held("a", 1, "w")}, "changed a 0; "},
		{"OtherOrder", []driver.Status{held("a", 1, "v", "w")}, []driver.Status{held("a", 1, "w", "v")}, "changed a 0; "},
		{"WaiterGone", []driver.Status{{Name: "a", Waiters: []driver.Waiting{{ID: "w"}}}}, nil, "changed a 0; "},
		{"Label", []driver.Status{held("a", 1)}, []driver.Status{{Name: "a", Holders: []driver.Holding{{ID: "o1", Token: 1, Holder: driver.Holder{Label: "l"}}}}}, "changed a 0; "},
		{"TimesOnly", []driver.Status{held("a", 1)}, []driver.Status{{Name: "a", Holders: []driver.Holding{{ID: "o1", Token: 1, Held: 5, Left: 7}}}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, f *fakeStore, h *Hub) {
				for _, st := range tt.before {
					f.put(st)
				}
				l := h.Listen()
				defer l.Close()
				next(t, l)
				for _, st := range tt.before {
					f.remove(st.Name)
				}
				for _, st := range tt.after {
					f.put(st)
				}
				if got := text(next(t, l)); got != tt.want {
					t.Errorf("events = %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// TestNobodyListens checks that the store is listed only while somebody listens.
func TestNobodyListens(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fakeStore, h *Hub) {
		time.Sleep(time.Minute)
		if got := f.listed(); got != 0 {
			t.Errorf("the store was listed %d times before somebody listened, want 0", got)
		}
		l := h.Listen()
		next(t, l)
		l.Close()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before := f.listed()
		time.Sleep(time.Minute)
		if got := f.listed(); got != before {
			t.Errorf("the store was listed %d times long after the listener had gone, want 0", got-before)
		}
	})
}

// TestSlowStore checks that a store whose list takes long is listed a tenth of the time.
func TestSlowStore(t *testing.T) {
	bubble(t, 500*time.Millisecond, func(t *testing.T, f *fakeStore, h *Hub) {
		l := h.Listen()
		defer l.Close()
		time.Sleep(50 * time.Second)
		if got := f.listed(); got > 10 || got < 9 {
			t.Errorf("a list that takes 500 ms was asked for %d times in 50 s, want 10", got)
		}
	})
}

// TestHungStore checks that listeners learn soon that a store which hung is back.
func TestHungStore(t *testing.T) {
	bubble(t, driver.AnswerTimeout, func(t *testing.T, f *fakeStore, h *Hub) {
		f.fail(driver.ErrUnavailable)
		l := h.Listen()
		defer l.Close()
		next(t, l)
		f.fail(nil)
		f.set(func() { f.took = 0 })
		back := time.Now()
		if next(t, l); time.Since(back) > driver.AnswerTimeout {
			t.Errorf("listeners learn after %v that the store is back, want %v at most", time.Since(back), driver.AnswerTimeout)
		}
	})
}

// TestManyListeners checks that listeners share the lists of the store.
func TestManyListeners(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fakeStore, h *Hub) {
		for range 100 {
			l := h.Listen()
			defer l.Close()
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if got := f.listed(); got > 11 {
			t.Errorf("100 listeners caused %d lists in 10 s, want 11", got)
		}
	})
}

// TestOverrun checks that a listener which needs several lists of the store for one batch, as for
// the first list of a large store, goes on behind that. It gets a snapshot if more has happened
// than is kept: each event has all waiters of its lock.
func TestOverrun(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fakeStore, h *Hub) {
		f.put(held("z", 1))
		l := h.Listen()
		defer l.Close()
		want := func(what string) {
			t.Helper()
			if got := text(next(t, l)); got != what {
				t.Errorf("the listener gets %q, want %q", got, what)
			}
		}
		want("reset z")
		f.put(held("a", 1))
		time.Sleep(1500 * time.Millisecond) // between two lists
		f.put(held("b", 2))
		f.remove("z")
		time.Sleep(5 * time.Second)
		want("acquired a 1; released z 1; acquired b 2; ")
		waiters := make([]string, maxShown/2+1)
		f.put(held("a", 1, waiters...))
		want("changed a 0; ")
		f.put(held("a", 2, waiters...))
		want("reset a b")
		f.remove("a")
		want("released a 2; ")
		for token := range uint64(500) {
			f.put(held("b", token+3, waiters[:1000]...))
			want(fmt.Sprintf("released b %d; acquired b %d; ", token+2, token+3))
		}
		kept := 0
		for _, e := range h.poller.last.events {
			kept += len(e.Lock.Waiters)
		}
		if kept > maxShown || kept < maxShown/2 {
			t.Errorf("the events that are kept have %d waiters, want %d at most, and many", kept, maxShown)
		}
	})
}

// TestOutage checks that an outage is told, and invents no event.
func TestOutage(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fakeStore, h *Hub) {
		f.put(held("a", 1))
		l := h.Listen()
		defer l.Close()
		first := next(t, l)
		down := errors.New("down")
		f.fail(down)
		f.remove("a")
		if b := next(t, l); !errors.Is(b.Err, down) || len(b.Events) != 0 || !b.At.Equal(first.At) {
			t.Errorf("in an outage: %+v, want the error, no event, and the time of the last snapshot", b)
		}
		f.put(held("a", 1))
		f.fail(nil)
		if b := next(t, l); b.Err != nil || text(b) != "" {
			t.Errorf("after the outage: %v %q, want nothing", b.Err, text(b))
		}
	})
}
