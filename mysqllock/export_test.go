package mysqllock

import "database/sql"

// NewOn returns a driver that uses a pool.
func NewOn(db *sql.DB) *Driver { return newDriver(db, defaultTable) }

// Pool returns the pool of a driver.
func Pool(d *Driver) *sql.DB { return d.db }
