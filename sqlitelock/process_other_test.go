//go:build darwin || windows

package sqlitelock

import "context"

// doSystemJob does a job of jobtest: those of this package are tested on Linux only.
func (j job) doSystemJob(ctx context.Context, d *Driver) error { return j.Do(ctx, d) }
