package metriclabel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metriclabel"
)

func TestReasonOf(t *testing.T) {
	errGone := errors.New("the caller went away")
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	tests := []struct {
		name string
		ctx  context.Context
		err  error
		want metriclabel.Reason
	}{
		{"Held", t.Context(), snib.ErrHeld, metriclabel.Busy},
		{"HeldAtTheEndOfMaxWait", gone, fmt.Errorf("%w: %w", snib.ErrHeld, errGone), metriclabel.Busy},
		{"HoldToAdoptIsOver", t.Context(), snib.ErrLost, metriclabel.Busy},
		{"Cancelled", gone, errGone, metriclabel.Canceled},
		{"Unavailable", t.Context(), snib.ErrUnavailable, metriclabel.Backend},
		{"CancelledDuringAnOutage", gone, fmt.Errorf("%w: %w", snib.ErrUnavailable, errGone), metriclabel.Backend},
		{"BadName", t.Context(), snib.ErrInvalid, metriclabel.Invalid},
		{"Kind", t.Context(), snib.ErrKind, metriclabel.Invalid},
		{"Other", t.Context(), errors.New("disk full"), metriclabel.Backend},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := metriclabel.ReasonOf(tt.ctx, tt.err); got != tt.want {
				t.Errorf("ReasonOf(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}

func TestClass(t *testing.T) {
	for name, want := range map[string]string{
		"invoices/2026-11":          "invoices",
		"invoices":                  "invoices",
		"cron/report":               "cron/report",
		"shop/42/cart/7":            "shop",
		"v2/orders/17":              "v2/orders",
		"order:42:pay":              "order",
		"user_1000":                 "user",
		"tenant a 7":                "tenant a",
		"sha256":                    "sha256",
		"job-":                      "job-",
		"-1":                        "",
		"2026-11-21":                "2026",
		"größe/9":                   "größe",
		"ключ9":                     "ключ9",
		"":                          "",
		"a/b:c.1":                   "a/b:c",
		"upload/a81bc81b-dead-4e5d": "upload/a81bc81b-dead",
	} {
		if got := metriclabel.Class(name); got != want {
			t.Errorf("Class(%q) = %q, want %q", name, got, want)
		}
	}
}

// Names that no lock can have don't become classes, of which there may be only so many.
func TestRefusedNames(t *testing.T) {
	type counts struct{ class string }
	classes, err := metriclabel.NewClasses(nil, 2, func(class string) *counts { return &counts{class} })
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", driver.MaxName+1)} {
		if got := classes.Name(name).class; got != metriclabel.Other {
			t.Errorf("class of %.10q = %q, want %q", name, got, metriclabel.Other)
		}
	}
	for _, name := range []string{"order:1", "user:2"} {
		if got := classes.Name(name).class; got != metriclabel.Class(name) {
			t.Errorf("class of %q = %q after refused names", name, got)
		}
	}
	if n := classes.Folded(); n != 0 {
		t.Errorf("%d names were folded", n)
	}
}
