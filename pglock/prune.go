package pglock

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

func (d *Driver) prune(ctx context.Context, unused time.Duration) error {
	if err := d.query(ctx, d.sql.Prune, []any{unused.Microseconds()}, nil); err != nil {
		return err
	}
	return d.query(ctx, d.sql.SetFloor, []any{unused.Microseconds(), rows.MaxTokenLead.Microseconds()}, nil)
}
