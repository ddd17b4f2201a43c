package snib_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// labelOf returns the label of the only holder that the store shows.
func labelOf(t testing.TB, l *snib.Locker, name string) string {
	t.Helper()
	st, err := l.Status(t.Context(), name)
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status(%q) = %+v, %v, want one holder", name, st, err)
	}
	return st.Holders[0].Holder.Label
}

func TestSetLabel(t *testing.T) {
	store := new(memlock.Store)
	l := open(t, store.Open(), snib.Label("import"))
	lock := acquire(t, l, "a")
	for _, text := range []string{"import: file 1 of 2", "import: file 2 of 2", ""} {
		wantErr(t, "SetLabel", lock.SetLabel(t.Context(), text), nil)
		if got := labelOf(t, l, "a"); got != text {
			t.Errorf("label after SetLabel(%q) = %q", text, got)
		}
	}
	wantErr(t, "SetLabel with a nil context", lock.SetLabel(nil, "text"), snib.ErrInvalid) //nolint:staticcheck // on purpose
	canceled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	wantErr(t, "SetLabel with a context that is done", lock.SetLabel(canceled, "text"), cause)
	release(t, lock)
	wantErr(t, "SetLabel after Release", lock.SetLabel(t.Context(), "text"), snib.ErrReleased)
	lock = acquire(t, l, "a")
	if got := labelOf(t, l, "a"); got != "import" {
		t.Errorf("label of the next hold = %q, want that of the option", got)
	}
	release(t, lock)
}

// TestSetLabelEndsRun checks that a lease with a label of its own is not handed over: the next hold
// would be shown with that label.
func TestSetLabelEndsRun(t *testing.T) {
	for _, changes := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Changes=%v", changes), func(t *testing.T) {
			var last snib.WaitEndedEvent
			trace := &snib.Trace{WaitEnded: func(e snib.WaitEndedEvent) { last = e }}
			l := open(t, new(memlock.Store).Open(), snib.Label("import"), snib.Tracing(trace))
			first, next := acquire(t, l, "a"), make(chan *snib.Lock)
			for range 2 {
				go func() { next <- acquire(t, l, "a") }()
			}
			synctest.Wait()
			release(t, first)
			second := <-next // its lease has a token for the third
			if changes {
				wantErr(t, "SetLabel", second.SetLabel(t.Context(), "half"), nil)
			}
			release(t, second)
			third := <-next
			if last.Local == changes {
				t.Errorf("the hold after one that changed its label (%v) was handed over: %v", changes, last.Local)
			}
			if got := labelOf(t, l, "a"); got != "import" {
				t.Errorf("the next hold is shown as %q", got)
			}
			release(t, third)
		})
	}
}

// A silentDriver does not tell of losses.
type silentDriver struct{ driver.Driver }

func (d silentDriver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.OnLost = nil
	return d.Driver.Acquire(ctx, req)
}

// TestSetLabelLearnsOfLoss checks that a hold ends at once if the store says that it is over.
func TestSetLabelLearnsOfLoss(t *testing.T) {
	store := new(memlock.Store)
	lock, other := acquire(t, open(t, silentDriver{store.Open()}), "a"), open(t, store.Open())
	wantErr(t, "Break", other.Break(t.Context(), "a", lock.ID()), nil)
	if isClosed(lock.Lost()) {
		t.Fatal("the driver has told of the loss: nothing is tested")
	}
	wantErr(t, "SetLabel of a hold that was broken", lock.SetLabel(t.Context(), "text"), snib.ErrLost)
	if !isClosed(lock.Lost()) {
		t.Error("the hold goes on after the store said that it is over")
	}
	wantErr(t, "Release", lock.Release(), snib.ErrLost)
}

// TestSetLabelDuringRelease checks that a hold that is released meanwhile does not count as lost.
func TestSetLabelDuringRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fault.Plan{Rules: []fault.Rule{{Op: fault.SetHolder, Before: time.Second}}}
		lock := acquire(t, open(t, fault.Wrap(memlock.New(), slow)), "a")
		time.AfterFunc(time.Millisecond, func() { release(t, lock) })
		wantErr(t, "SetLabel", lock.SetLabel(t.Context(), "text"), snib.ErrReleased)
	})
}

// TestSetLabelInOutage checks that SetLabel does not wait for a store that hangs, and that the hold
// goes on.
func TestSetLabelInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fault.Wrap(new(memlock.Store).Open(),
			fault.Plan{Rules: []fault.Rule{{Op: fault.SetHolder, Call: 1, Effect: fault.Hang}}})
		lock := acquire(t, open(t, d), "a")
		began := time.Now()
		wantErr(t, "SetLabel while the store hangs", lock.SetLabel(t.Context(), "text"), snib.ErrUnavailable)
		if took := time.Since(began); took != driver.AnswerTimeout {
			t.Errorf("SetLabel took %v, want %v", took, driver.AnswerTimeout)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(snib.ErrLost) // of another hold
		wantErr(t, "SetLabel for a caller that is gone", lock.SetLabel(gone, "text"), snib.ErrLost)
		wantErr(t, "SetLabel again", lock.SetLabel(t.Context(), "text"), nil)
		release(t, lock)
	})
}
