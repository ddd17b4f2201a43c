package mysqllock

import "database/sql"

// NewOn returns a driver that uses a pool.
func NewOn(db *sql.DB) *Driver {
	c, _ := newConfig(nil)
	return newDriver(db, c)
}

// Pool returns the pool of a driver.
func Pool(d *Driver) *sql.DB { return d.db }
