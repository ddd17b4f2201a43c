package mysqllock

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

func TestUsable(t *testing.T) {
	for version, want := range map[string]error{
		"8.0.44":                           nil,
		"5.7.44-log":                       nil,
		"9.5.0":                            nil,
		"5.6.51":                           driver.ErrInvalid, // a GET_LOCK releases the last
		"5.5.5-10.11.19-MariaDB-0+deb12u1": nil,
		"10.11.19-MariaDB-0+deb12u1":       nil,
		"10.2.44-MariaDB":                  nil,
		"10.1.48-MariaDB":                  driver.ErrInvalid,
		"5.5.68-MariaDB":                   driver.ErrInvalid,
		"":                                 driver.ErrInvalid,
		"unknown":                          driver.ErrInvalid,
	} {
		if err := usable(version); !errors.Is(err, want) {
			t.Errorf("usable(%q) = %v, want %v", version, err, want)
		}
	}
}

// Each acquisition reports unusable options.
func TestOptionsRefused(t *testing.T) {
	for name, opt := range map[string]Option{
		"Table": Table("a.b.c"), "Timeout": Timeout(time.Millisecond), "Keys": Keys(nil), "Connections": Connections(0),
	} {
		d := NewSession(new(sql.DB), opt)
		if _, err := d.Acquire(t.Context(), driver.Request{Name: "a", Owner: "a", TTL: time.Minute}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Acquire with a bad option %s = %v, want ErrInvalid", name, err)
		}
		_ = d.Close()
	}
}
