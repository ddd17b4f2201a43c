//go:build darwin || windows

package sqlitelock

import (
	"context"

	"github.com/sniblock/snib/internal/livetest"
)

// doSystemJob holds the lock: the other jobs are tested on Linux only.
func (j job) doSystemJob(ctx context.Context, d *Driver) error { return livetest.Hold(ctx, d, j.Req) }
