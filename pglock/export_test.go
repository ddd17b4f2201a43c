package pglock

import "github.com/jackc/pgx/v5/pgxpool"

// Pool returns the driver's own pool.
func (d *Driver) Pool() *pgxpool.Pool { return d.pool }
