package backend

import (
	"fmt"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
)

// Schemas are the kinds of databases whose tables can be made by hand.
func Schemas() []string { return []string{"postgres", "mysql"} }

// Schema returns the statements that make the tables which the command needs in such a database.
func Schema(kind string) (string, error) {
	switch kind {
	case "postgres":
		return pglock.Schema("")
	case "mysql":
		return mysqllock.Schema("")
	}
	return "", fmt.Errorf("%w: no tables are made in %q; there are postgres and mysql", driver.ErrInvalid, kind)
}
