package snib

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLazyDeadline checks that withLazyDeadline returns a context that behaves like one of
// context.WithTimeout, at whatever time its methods are first called.
func TestLazyDeadline(t *testing.T) {
	const timeout = time.Second
	type key struct{}
	accesses := map[string]func(context.Context){
		"none":  func(context.Context) {},
		"Err":   func(ctx context.Context) { _ = ctx.Err() },
		"Done":  func(ctx context.Context) { _ = ctx.Done() },
		"child": func(ctx context.Context) { context.AfterFunc(ctx, func() {}) },
	}
	tests := []struct {
		name string
		act  func(access func(), end func())
	}{
		{"Young", func(func(), func()) {}},
		{"AlmostOver", func(_, _ func()) { time.Sleep(timeout - 1) }},
		{"Over", func(_, _ func()) { time.Sleep(timeout) }},
		{"Ended", func(_, end func()) { end() }},
		{"EndedThenOver", func(access, end func()) { end(); access(); time.Sleep(timeout) }},
		{"OverThenEnded", func(access, end func()) { time.Sleep(timeout); synctest.Wait(); access(); end() }},
	}
	for _, tt := range tests {
		for first, access := range accesses {
			t.Run(tt.name+"/"+first, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					std, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					lazy := withLazyDeadline(t.Context(), time.Now().Add(timeout))
					defer lazy.cancel()
					access(lazy)
					tt.act(func() { access(lazy) }, func() { cancel(); lazy.cancel() })
					synctest.Wait()
					if first == "none" && tt.name == "OverThenEnded" {
						return // unused, it can't know that it was over before it was cancelled
					}
					wantSame(t, "Err", lazy.Err(), std.Err())
					wantSame(t, "Cause", context.Cause(lazy), context.Cause(std))
					child, stop := context.WithCancel(context.WithValue(lazy, key{}, 1))
					defer stop()
					synctest.Wait()
					wantSame(t, "a child's Err", child.Err(), std.Err())
					wantSame(t, "a child's Cause", context.Cause(child), context.Cause(std))
					wantSame(t, "Err after Done", lazy.Err(), std.Err())
					wantSame(t, "Cause after Done", context.Cause(lazy), context.Cause(std))
					done, again := lazy.Done(), lazy.Done()
					if got, want := isClosed(done), isClosed(std.Done()); got != want || done != again {
						t.Errorf("Done is closed: %v, want %v, and the same channel each time", got, want)
					}
					got, ok := lazy.Deadline()
					if want, _ := std.Deadline(); !ok || !got.Equal(want) {
						t.Errorf("Deadline = %v, %v, want %v", got, ok, want)
					}
					if got := lazy.Value(key{}); got != nil {
						t.Errorf("Value = %v, want none", got)
					}
				})
			})
		}
	}
}

// TestLazyDeadlineWakes checks that the deadline and cancel both end a wait for Done.
func TestLazyDeadlineWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, d := time.Now(), withLazyDeadline(t.Context(), time.Now().Add(time.Second))
		<-d.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(d.Err(), context.DeadlineExceeded) {
			t.Errorf("woken after %v with %v", took, d.Err())
		}
		began, d = time.Now(), withLazyDeadline(t.Context(), time.Now().Add(time.Hour))
		time.AfterFunc(time.Second, d.cancel)
		child, stop := context.WithCancel(d)
		defer stop()
		<-child.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(child.Err(), context.Canceled) {
			t.Errorf("woken after %v with %v", took, child.Err())
		}
	})
}

func wantSame(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || !errors.Is(want, got) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
