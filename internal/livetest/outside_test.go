package livetest

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"
)

func TestOutside(t *testing.T) {
	var dir string
	var ended []string
	tests := []struct {
		name string
		use  func(testing.TB) error
		want string
	}{
		{"Good", func(testing.TB) error { return nil }, ""},
		{"Returns", func(testing.TB) error { return io.EOF }, "EOF"},
		{"Ends", func(t testing.TB) error { t.Fatalf("end: %v", 1); panic("not reached") }, "end: 1"},
		{"Missing", func(t testing.TB) error { Binary(t, "nothing", "no-such-program"); return nil },
			"no-such-program is not installed"},
		{"Reports", func(t testing.TB) error { t.Errorf("first"); return errors.New("second") }, "second\nfirst"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ended = nil
			err := Outside(func(t testing.TB) error {
				dir = t.TempDir()
				t.Cleanup(func() { ended = append(ended, "one") })
				t.Cleanup(func() { ended = append(ended, "two") })
				return tt.use(t)
			})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Outside = %q, want %q", got, tt.want)
			}
			if want := []string{"two", "one"}; !slices.Equal(ended, want) {
				t.Errorf("the cleanups ran as %q, want %q", ended, want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("Stat of the folder = %v, want that it is gone", err)
			}
		})
	}
}

// TestOutsideMissing checks that a program can tell which server is not installed.
func TestOutsideMissing(t *testing.T) {
	err := Outside(func(t testing.TB) error {
		Binary(WithEnv(t, "X=1"), "nothing", "no-such-program")
		return nil
	})
	if missing, ok := errors.AsType[*MissingError](err); !ok || missing.Server != "nothing" {
		t.Errorf("Outside = %v, want that nothing is missing", err)
	}
}
