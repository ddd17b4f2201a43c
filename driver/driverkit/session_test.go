package driverkit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const idle = 30 * time.Second

// A connection lasts as long as the server can't have ended its session, and
// the connection can be trusted.
func TestSessionConn(t *testing.T) {
	errRefused, errBroken := errors.New("refused"), errors.New("broken")
	hang := func(ctx context.Context) error { <-ctx.Done(); return errBroken }
	answer := func(after time.Duration, err error) func(context.Context) error {
		return func(context.Context) error { time.Sleep(after); return err }
	}
	tests := []struct {
		name  string
		calls []func(context.Context) error
		took  time.Duration
		due   time.Duration // from the beginning of all
		err   error
	}{
		{name: "Answered", calls: []func(context.Context) error{answer(time.Second, nil)}, took: time.Second, due: idle / 3},
		{name: "CountsFromSend", calls: []func(context.Context) error{answer(time.Second, nil), answer(2*time.Second, nil)},
			took: 3 * time.Second, due: time.Second + idle/3},
		{name: "RefusalsDontCount", calls: []func(context.Context) error{answer(time.Second, errRefused), answer(time.Second, errRefused)},
			took: 2 * time.Second, due: idle / 3},
		{name: "Hangs", calls: []func(context.Context) error{hang}, took: idle * 9 / 10, due: idle / 3, err: errBroken},
		{name: "HangsAfterAnAnswer", calls: []func(context.Context) error{answer(time.Second, nil), answer(time.Second, nil), hang},
			took: time.Second + idle*9/10, due: time.Second + idle/3, err: errBroken},
		{name: "Doubt", calls: []func(context.Context) error{answer(0, driverkit.UnknownOutcomeError{Err: errRefused})}, due: idle / 3, err: errRefused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := driverkit.NewSessionConn(idle)
				var err error
				for _, run := range tt.calls {
					err = l.Run(driverkit.NewCall(t.Context(), run), func(_ context.Context, err error) bool { return errors.Is(err, errBroken) })
				}
				if !errors.Is(err, tt.err) {
					t.Errorf("the last call ends with %v, want %v", err, tt.err)
				}
				if got := time.Since(began); got != tt.took {
					t.Errorf("the calls took %v, want %v", got, tt.took)
				}
				if got := l.Due().Sub(began); got != tt.due {
					t.Errorf("the next call is due at %v, want %v", got, tt.due)
				}
			})
		})
	}
}

// Wait returns the answer of the call, or the reason for the end of the connection. If the caller's
// context ends, it returns within a Moment, and the call goes on.
func TestSessionConnWait(t *testing.T) {
	errEnough, errGone := errors.New("enough"), errors.New("gone")
	tests := []struct {
		name            string
		answer          time.Duration // of the call
		cancel, endLine time.Duration // 0 for never
		want            error
		took            time.Duration
		cut             bool // the call
		silent          bool // no answer came in time
	}{
		{name: "Answered", answer: time.Second, took: time.Second},
		{name: "Impatient", answer: 10 * time.Second, cancel: time.Second, want: errEnough, took: time.Second + driverkit.CancelDelay,
			silent: true},
		{name: "JustInTime", answer: time.Second + driverkit.CancelDelay/2, cancel: time.Second, took: time.Second + driverkit.CancelDelay/2},
		{name: "LineEnds", answer: 10 * time.Second, endLine: time.Second, want: errGone, took: time.Second, cut: true},
		{name: "LineEndsForTheImpatient", answer: 10 * time.Second, cancel: time.Second, endLine: time.Second + driverkit.CancelDelay/2,
			want: errEnough, took: time.Second + driverkit.CancelDelay/2, cut: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				l := driverkit.NewSessionConn(idle)
				after := func(d time.Duration, do func(error), why error) {
					if d > 0 {
						time.AfterFunc(d, func() { do(why) })
					}
				}
				after(tt.cancel, cancel, errEnough)
				after(tt.endLine, l.End, errGone)
				sent, cut := driver.Now(), false
				c := driverkit.NewCall(ctx, func(ctx context.Context) error {
					select {
					case <-time.After(tt.answer):
						return nil
					case <-ctx.Done():
						cut = true
						return ctx.Err()
					}
				})
				go l.Run(c, func(context.Context, error) bool { return false })
				start, err := l.Wait(ctx, c)
				if !errors.Is(err, tt.want) || errors.Is(err, driver.ErrLost) != errors.Is(tt.want, errGone) {
					t.Errorf("Wait = %v, want %v", err, tt.want)
				}
				if errors.Is(err, driver.ErrUnavailable) != tt.silent {
					t.Errorf("Wait = %v, want ErrUnavailable: %v", err, tt.silent)
				}
				if err == nil && start != sent {
					t.Errorf("Wait says that it was sent at %v, want %v", start, sent)
				}
				if got := driver.Now().Sub(sent); got != tt.took {
					t.Errorf("Wait took %v, want %v", got, tt.took)
				}
				time.Sleep(tt.answer)
				synctest.Wait()
				if cut != tt.cut {
					t.Errorf("the call was cut off: %v, want %v", cut, tt.cut)
				}
			})
		})
	}
}
