package backend

import (
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
)

// Schemas returns the kinds of databases whose tables can be created by hand.
func Schemas() []string { return []string{"postgres", "mysql"} }

// Schema returns the statements that create the tables for the command in a database of that
// kind.
func Schema(kind string) (string, error) {
	switch kind {
	case "postgres":
		return pglock.Schema("")
	case "mysql":
		return mysqllock.Schema("")
	}
	return "", driver.Invalidf("kind: no tables are made in %q; there are postgres and mysql", kind)
}
