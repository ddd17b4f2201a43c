package backend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/ncruces/go-sqlite3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// refusals is a database that answers each request with the next error.
type refusals []error

func (r *refusals) Connect(context.Context) (sqldriver.Conn, error) {
	err := (*r)[0]
	*r = (*r)[1:]
	return nil, err
}

func (*refusals) Driver() sqldriver.Driver { return nil }

// TestIdentityFails checks that a store counts as one without an identity only if its user may not
// use the table: a service asks no more then, and refuses clients that know the identity.
func TestIdentityFails(t *testing.T) {
	pg := func(code string) error { return &pgconn.PgError{Code: code} }
	my := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	for _, tt := range []struct {
		name    string
		answers refusals // to the first try; to the creation of the table, and to the second try, if there is none
		isDown  bool
	}{
		{"PostgresReadOnly", refusals{pg("25006")}, true},
		{"PostgresConflict", refusals{pg("40001")}, true},
		{"PostgresPassword", refusals{pg("28P01")}, true},
		{"PostgresPermission", refusals{pg("42501")}, false},
		{"PostgresMayNotCreate", refusals{pg("42P01"), pg("42501"), pg("42P01")}, false},
		{"PostgresCanNotCreate", refusals{pg("42P01"), pg("53100"), pg("42P01")}, true},
		{"MySQLReadOnly", refusals{my(1290)}, true},
		{"MySQLPassword", refusals{my(1045)}, true},
		{"MySQLPermission", refusals{my(1142)}, false},
		{"MySQLMayNotCreate", refusals{my(1146), my(1142), my(1146)}, false},
		{"SQLiteFull", refusals{sqlite3.FULL}, true},
		{"SQLiteFault", refusals{sqlite3.IOERR}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Store{location: location{openMarks: func() (*sql.DB, fence.Dialect, error) {
				return sql.OpenDB(&tt.answers), fence.Postgres, nil
			}}}
			if id, err := s.Identity(t.Context()); err == nil || errors.Is(err, driver.ErrUnavailable) != tt.isDown {
				t.Errorf("Identity = %q, %v; want an error, unavailable %t", id, err, tt.isDown)
			}
		})
	}
}
