package label_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/label"
)

func TestReasonOf(t *testing.T) {
	errGone := errors.New("the caller went away")
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	tests := []struct {
		name string
		ctx  context.Context
		err  error
		want label.Reason
	}{
		{"Held", t.Context(), snib.ErrHeld, label.Busy},
		{"Cancelled", gone, errGone, label.Canceled},
		{"Unavailable", t.Context(), snib.ErrUnavailable, label.Backend},
		{"CancelledDuringAnOutage", gone, fmt.Errorf("%w: %w", snib.ErrUnavailable, errGone), label.Backend},
		{"Other", t.Context(), errors.New("disk full"), label.Backend},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := label.ReasonOf(tt.ctx, tt.err); got != tt.want {
				t.Errorf("ReasonOf(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}
