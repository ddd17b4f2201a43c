package snib_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

func TestInspection(t *testing.T) {
	store := new(memlock.Store)
	l := open(t, store.Open(), snib.Prefix("p/"))
	other := open(t, store.Open())
	lock, outside := acquire(t, l, "a"), acquire(t, other, "b")
	release(t, acquire(t, l, "c"))

	st, err := l.Status(t.Context(), "a")
	if err != nil || st.Name != "a" || len(st.Holders) != 1 || st.Holders[0].Token != lock.Token() {
		t.Errorf("Status of a lock that is held = %+v, %v", st, err)
	}
	if st, err := other.Status(t.Context(), "p/a"); err != nil || st.Name != "p/a" || len(st.Holders) != 1 {
		t.Errorf("Status without a prefix = %+v, %v", st, err)
	}
	if st, err := l.Status(t.Context(), "b"); err != nil || len(st.Holders) != 0 {
		t.Errorf("Status of a name without its prefix = %+v, %v", st, err)
	}
	if got := names(t, l, ""); got != "a" {
		t.Errorf("List with a prefix = %q, want a", got)
	}
	if got := names(t, other, ""); got != "b p/a" {
		t.Errorf("List = %q, want b p/a", got)
	}
	for st, err := range other.List(t.Context(), "") {
		if err != nil || st.Name != "b" {
			t.Errorf("List = %+v, %v", st, err)
		}
		break // the rest is not asked for
	}

	holder := st.Holders[0]
	wantErr(t, "Break with another id", l.Break(t.Context(), "a", holder.ID+"x"), snib.ErrLost)
	wantErr(t, "Break", l.Break(t.Context(), "a", holder.ID), nil)
	<-lock.Lost()
	release(t, outside)
}

// names returns the names that a List returns.
func names(t *testing.T, l *snib.Locker, prefix string) string {
	t.Helper()
	var all []string
	for st, err := range l.List(t.Context(), prefix) {
		if err != nil {
			t.Errorf("List = %v", err)
		}
		all = append(all, st.Name)
	}
	return strings.Join(all, " ")
}

func TestInspectionFails(t *testing.T) {
	closed, err := snib.New(memlock.New())
	wantErr(t, "New", err, nil)
	wantErr(t, "Close", closed.Close(), nil)
	tests := []struct {
		name string
		l    *snib.Locker
		lock string
		want error
	}{
		{"Closed", closed, "a", snib.ErrClosed},
		{"With", open(t, memlock.New()).With(snib.Slots(-1)), "a", snib.ErrInvalid},
		{"NoName", open(t, memlock.New()), "", snib.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.l.Status(t.Context(), tt.lock)
			wantErr(t, "Status", err, tt.want)
			wantErr(t, "Break", tt.l.Break(t.Context(), tt.lock, "o"), tt.want)
			if tt.lock == "" {
				return // the prefix of all names
			}
			errs := 0
			for _, err := range tt.l.List(t.Context(), tt.lock) {
				wantErr(t, "List", err, tt.want)
				errs++
			}
			if errs != 1 {
				t.Errorf("List returned %d errors", errs)
			}
		})
	}
}

// Ping says whether the store answers.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, err := snib.New(memlock.New())
		wantErr(t, "New", err, nil)
		wantErr(t, "Close", closed.Close(), nil)
		gone, hung := fault.Wrap(memlock.New(), fault.Plan{}), fault.Wrap(memlock.New(), fault.Plan{})
		gone.Sever(fault.Fail)
		hung.Sever(fault.Hang)
		cancelled, cancel := context.WithCancelCause(t.Context())
		errStop := errors.New("stop")
		cancel(errStop)
		tests := []struct {
			name string
			l    *snib.Locker
			ctx  context.Context
			want error
		}{
			{"Answers", open(t, memlock.New()), t.Context(), nil},
			{"Closed", closed, t.Context(), snib.ErrClosed},
			{"With", open(t, memlock.New()).With(snib.Slots(-1)), t.Context(), snib.ErrInvalid},
			{"Gone", open(t, gone), t.Context(), fault.ErrSevered},
			{"Hung", open(t, hung), t.Context(), snib.ErrUnavailable},
			{"Cancelled", open(t, hung), cancelled, errStop},
		}
		for _, tt := range tests {
			began := time.Now()
			err := tt.l.Ping(tt.ctx)
			wantErr(t, tt.name+": Ping", err, tt.want)
			if took := time.Since(began); took > driver.AnswerTimeout {
				t.Errorf("%s: Ping took %v", tt.name, took)
			}
		}
	})
}
