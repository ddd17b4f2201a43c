package snib

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A deadline can't be told from a context of context.WithTimeout, whenever it is looked at.
func TestDeadlineIsAContext(t *testing.T) {
	const long = time.Second
	type key struct{}
	looks := map[string]func(context.Context){
		"none":  func(context.Context) {},
		"Err":   func(ctx context.Context) { _ = ctx.Err() },
		"Done":  func(ctx context.Context) { _ = ctx.Done() },
		"child": func(ctx context.Context) { context.AfterFunc(ctx, func() {}) },
	}
	tests := []struct {
		name string
		play func(look func(), end func())
	}{
		{"Young", func(func(), func()) {}},
		{"AlmostOver", func(_, _ func()) { time.Sleep(long - 1) }},
		{"Over", func(_, _ func()) { time.Sleep(long) }},
		{"Ended", func(_, end func()) { end() }},
		{"EndedThenOver", func(look, end func()) { end(); look(); time.Sleep(long) }},
		{"OverThenEnded", func(look, end func()) { time.Sleep(long); synctest.Wait(); look(); end() }},
	}
	for _, tt := range tests {
		for first, look := range looks {
			t.Run(tt.name+"/"+first, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					std, cancel := context.WithTimeout(t.Context(), long)
					defer cancel()
					ours := within(t.Context(), long)
					defer ours.end()
					look(ours)
					tt.play(func() { look(ours) }, func() { cancel(); ours.end() })
					synctest.Wait()
					if first == "none" && tt.name == "OverThenEnded" {
						return // nobody can tell that it was over before it was ended
					}
					compare(t, "Err", ours.Err(), std.Err())
					compare(t, "Cause", context.Cause(ours), context.Cause(std))
					child, stop := context.WithCancel(context.WithValue(ours, key{}, 1))
					defer stop()
					synctest.Wait()
					compare(t, "a child's Err", child.Err(), std.Err())
					compare(t, "a child's Cause", context.Cause(child), context.Cause(std))
					compare(t, "Err after Done", ours.Err(), std.Err())
					compare(t, "Cause after Done", context.Cause(ours), context.Cause(std))
					done, again := ours.Done(), ours.Done()
					if got, want := closedNow(done), closedNow(std.Done()); got != want || done != again {
						t.Errorf("Done is closed: %v, want %v, and the same channel each time", got, want)
					}
					got, ok := ours.Deadline()
					if want, _ := std.Deadline(); !ok || !got.Equal(want) {
						t.Errorf("Deadline = %v, %v, want %v", got, ok, want)
					}
					if got := ours.Value(key{}); got != nil {
						t.Errorf("Value = %v, want none", got)
					}
				})
			})
		}
	}
}

// Who waits is woken by the deadline, and by the end.
func TestDeadlineWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, d := time.Now(), within(t.Context(), time.Second)
		<-d.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(d.Err(), context.DeadlineExceeded) {
			t.Errorf("woken after %v with %v", took, d.Err())
		}
		began, d = time.Now(), within(t.Context(), time.Hour)
		time.AfterFunc(time.Second, d.end)
		child, stop := context.WithCancel(d)
		defer stop()
		<-child.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(child.Err(), context.Canceled) {
			t.Errorf("woken after %v with %v", took, child.Err())
		}
	})
}

func compare(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || !errors.Is(want, got) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func closedNow(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
