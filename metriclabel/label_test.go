package metriclabel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sniblock/snib"
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
		{"Cancelled", gone, errGone, metriclabel.Canceled},
		{"Unavailable", t.Context(), snib.ErrUnavailable, metriclabel.Backend},
		{"CancelledDuringAnOutage", gone, fmt.Errorf("%w: %w", snib.ErrUnavailable, errGone), metriclabel.Backend},
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
