package mysqllock

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
)

func TestUsable(t *testing.T) {
	for version, want := range map[string]error{
		"8.0.44":                           driver.ErrInvalid,
		"5.5.5-10.11.19-MariaDB-0+deb12u1": nil,
		"10.11.19-MariaDB-0+deb12u1":       nil,
		"10.3.39-MariaDB":                  nil,
		"10.2.44-MariaDB":                  driver.ErrInvalid,
		"5.5.68-MariaDB":                   driver.ErrInvalid,
		"":                                 driver.ErrInvalid,
		"unknown":                          driver.ErrInvalid,
	} {
		if err := usable(version); !errors.Is(err, want) {
			t.Errorf("usable(%q) = %v, want %v", version, err, want)
		}
	}
}

// TestMySQLIsNamed: MySQL refuses a variable that the pool sets, before its version is read.
func TestMySQLIsNamed(t *testing.T) {
	refused := &mysql.MySQLError{Number: 1193, Message: "Unknown system variable 'max_statement_time'"}
	err := new(Driver).explain(t.Context(), refused)
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "MariaDB") {
		t.Errorf("explain = %v, want ErrInvalid that names MariaDB", err)
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		conf *mysql.Config
		opt  Option
		says string
	}{
		{"NoConfig", nil, Table("a"), "config: it is nil"},
		{"Network", &mysql.Config{Net: "pigeon"}, Table("a"), "pigeon"},
		{"ParameterWithSpace", &mysql.Config{Params: map[string]string{" timestamp": "1"}}, Table("a"), "plain name"},
		{"ParameterOfSession", &mysql.Config{Params: map[string]string{"@@timestamp": "1"}}, Table("a"), "plain name"},
		{"TwoDots", mysql.NewConfig(), Table("a.b.c"), "a dot and a name"},
		{"Placeholder", mysql.NewConfig(), Table("a[names]"), "ASCII"}, // of our statements
		{"Accent", mysql.NewConfig(), Table("infra.verroués"), "ASCII"},
		{"LongName", mysql.NewConfig(), Table(strings.Repeat("a", 65)), "1 to 64"},
		{"ZeroOption", mysql.NewConfig(), Option{}, "a dot and a name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d, err := New(tt.conf, tt.opt); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.says) ||
				d != nil {
				t.Errorf("= %v, %v, want ErrInvalid that says %q", d, err, tt.says)
			}
		})
	}
}
