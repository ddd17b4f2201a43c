package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// A name that would need quotes never becomes part of a statement. The tests in
// internal/guarded run the statements on real databases.
func TestIdentifiers(t *testing.T) {
	for _, bad := range []string{"a b", "a;b", `a"b`, "a'", "a`", "1a", "A", "ä", "a-b", "a.b.c", ".a", "a.",
		strings.Repeat("a", 64), "a\x00"} {
		t.Run(bad, func(t *testing.T) {
			g := fence.SQL{Dialect: fence.Postgres, Table: bad}
			_, schemaErr := g.Schema()
			_, _, err := g.Statement()
			columns := map[string]fence.Columns{
				"Table": {Dialect: fence.MySQL, Table: bad, Key: "id"},
				"Key":   {Dialect: fence.MySQL, Table: "a", Key: bad},
				"Token": {Dialect: fence.MySQL, Table: "a", Key: "id", Token: bad},
				"Owner": {Dialect: fence.MySQL, Table: "a", Key: "id", Owner: bad},
			}
			for _, err := range []error{schemaErr, err} {
				if !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("SQL with the table %q: %v, want ErrInvalid", bad, err)
				}
			}
			for name, c := range columns {
				_, _, err := c.Clauses(1)
				_, schemaErr := c.Schema()
				if !errors.Is(err, driver.ErrInvalid) || !errors.Is(schemaErr, driver.ErrInvalid) {
					t.Errorf("%s %q: %v, %v, want ErrInvalid", name, bad, err, schemaErr)
				}
			}
			c := fence.Columns{Dialect: fence.SQLite, Table: "a", Key: "id"}
			if err := c.Update(t.Context(), nil, mark(t, 1, "a"), 1, map[string]any{bad: 1}); !errors.Is(err,
				driver.ErrInvalid) {
				t.Errorf("Update of the column %q = %v, want ErrInvalid", bad, err)
			}
		})
	}
	c := fence.Columns{Dialect: fence.SQLite, Table: "a", Key: "id"}
	for _, own := range []string{"fence", "fence_owner", "id"} {
		if err := c.Update(t.Context(), nil, mark(t, 1, "a"), 1, map[string]any{own: 1}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Update of the column %q = %v, want ErrInvalid", own, err)
		}
	}
	for _, g := range []fence.SQL{{}, {Dialect: 9}} {
		if _, err := g.Schema(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Schema without a dialect = %v, want ErrInvalid", err)
		}
	}
}

func TestClauses(t *testing.T) {
	set, where, err := fence.Columns{Dialect: fence.Postgres, Table: "bank.account", Key: "id"}.Clauses(3)
	if err != nil || set != "fence = $3, fence_owner = $4" || where != "(fence < $5 OR fence = $6 AND fence_owner = $7)" {
		t.Errorf("Clauses = %q, %q, %v", set, where, err)
	}
	set, where, err = fence.Columns{Dialect: fence.MySQL, Table: "account", Key: "id", Token: "t", Owner: "o"}.Clauses(3)
	if err != nil || set != "t = ?, o = ?" || where != "(t < ? OR t = ? AND o = ?)" {
		t.Errorf("Clauses = %q, %q, %v", set, where, err)
	}
}
