package backend

import (
	"fmt"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/pglock"
)

// Schemas are the kinds of databases whose tables can be made by hand.
func Schemas() []string { return []string{"postgres"} }

// Schema returns the statements that make the tables which the command needs in such a database.
func Schema(kind string) (string, error) {
	if kind == "postgres" {
		return pglock.Schema("")
	}
	return "", fmt.Errorf("%w: no tables are made by hand in %q; there is: postgres", driver.ErrInvalid, kind)
}
