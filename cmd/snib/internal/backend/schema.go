package backend

import (
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
)

// Schemas returns the kinds of databases whose tables can be created by hand.
func Schemas() []string { return []string{"postgres", "mysql"} }

// Schema returns the statements that create the tables for the command in a database of that
// kind.
func Schema(kind string) (string, error) {
	var locks string
	var err error
	guard := fence.SQL{Table: guardTable}
	switch kind {
	case "postgres":
		guard.Dialect = fence.Postgres
		locks, err = pglock.Schema("")
	case "mysql":
		guard.Dialect = fence.MySQL
		locks, err = mysqllock.Schema("")
	default:
		err = driver.Invalidf("kind: no tables are made in %q; there are postgres and mysql", kind)
	}
	if err != nil {
		return "", err
	}
	marks, err := guard.Schema()
	return locks + marks + ";\n", err
}
