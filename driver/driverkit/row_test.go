package driverkit_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

var (
	errMalformed = errors.New("malformed")
	errDown      = errors.New("down")
)

func isMalformed(err error) bool { return errors.Is(err, errMalformed) }

func TestIsolate(t *testing.T) {
	eight := []int{1, 2, 3, 4, 5, 6, 7, 8}
	tests := []struct {
		name   string
		items  []int
		bad    []int // items whose row is malformed
		downAt int   // the call from which on the server does not answer; 0 for never
		want   error
		calls  int // at most
	}{
		{name: "None"},
		{name: "AllWell", items: eight, calls: 1},
		{name: "OneBad", items: eight, bad: []int{6}, calls: 7},
		{name: "OnlyOne", items: []int{1}, bad: []int{1}, calls: 1},
		{name: "AllBad", items: eight, bad: eight, calls: 15},
		{name: "Down", items: eight, bad: []int{6}, downAt: 1, want: errDown, calls: 1},
		{name: "DownMeanwhile", items: eight, bad: []int{6}, downAt: 3, want: errDown, calls: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			var done, bad []int
			err := driverkit.Isolate(tt.items, isMalformed, func(some []int) error {
				calls++
				switch {
				case tt.downAt > 0 && calls >= tt.downAt:
					return errDown
				case slices.ContainsFunc(some, func(i int) bool { return slices.Contains(tt.bad, i) }):
					return errMalformed
				}
				done = append(done, some...)
				return nil
			}, func(i int, _ error) { bad = append(bad, i) })
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("Isolate = %v, want %v", err, tt.want)
			}
			if calls > max(tt.calls, 1) {
				t.Errorf("Isolate made %d calls, want at most %d", calls, tt.calls)
			}
			if tt.want != nil {
				return
			}
			if !slices.Equal(bad, tt.bad) {
				t.Errorf("Isolate found %v malformed, want %v", bad, tt.bad)
			}
			if len(done)+len(bad) != len(tt.items) {
				t.Errorf("Isolate ran %v and found %v malformed, want all of %v", done, bad, tt.items)
			}
		})
	}
}

func TestRowError(t *testing.T) {
	cause := errors.Join(errMalformed, errors.New(strings.Repeat("é", 1000)))
	err := error(&driverkit.RowError{Name: "job", Table: "snib_locks", Err: cause})
	if !errors.Is(err, driver.ErrInvalid) || !errors.Is(err, errMalformed) {
		t.Errorf("%v does not match ErrInvalid and its cause", err)
	}
	text := err.Error()
	for _, want := range []string{`row of "job" in the table snib_locks: malformed`, "delete the row"} {
		if !strings.Contains(text, want) {
			t.Errorf("Error = %s, want a text with %s", text, want)
		}
	}
	if len(text) > 500 || strings.ToValidUTF8(text, "") != text {
		t.Errorf("Error has %d bytes, want at most 500 of valid UTF-8", len(text))
	}
}
