package rows_test

import (
	"math"
	"testing"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

func TestBetween(t *testing.T) {
	const most = 100 * 365 * 24 * time.Hour
	tests := []struct {
		from, to int64
		want     time.Duration
	}{
		{5, 7, 2 * time.Microsecond},
		{7, 7, 0},
		{7, 5, 0},
		{math.MaxInt64, math.MinInt64, 0},
		{1_800_000_000_000_000, 253_402_300_799_000_000, most}, // the end of the year 9999
		{0, math.MaxInt64, most},
		{math.MinInt64, math.MaxInt64, most},
		{0, most.Microseconds() - 1, most - time.Microsecond},
	}
	for _, tt := range tests {
		if got := rows.Between(tt.from, tt.to); got != tt.want {
			t.Errorf("Between(%d, %d) = %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
