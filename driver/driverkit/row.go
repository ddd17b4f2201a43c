package driverkit

import (
	"fmt"
	"strings"

	"github.com/sniblock/snib/driver"
)

// longestCause is how many bytes of a cause a RowError shows. Servers and parsers repeat what
// they could not read, however long it is.
const longestCause = 300

// A RowError means that the row of one lock can't be used, because somebody has written into it
// what no driver writes. It matches [driver.ErrInvalid] and its cause.
type RowError struct {
	Name  string // of the lock
	Table string // as in a statement
	Err   error  // the cause
}

func (e *RowError) Error() string {
	cause := e.Err.Error()
	if len(cause) > longestCause {
		cause = strings.ToValidUTF8(cause[:longestCause], "") + "..."
	}
	return fmt.Sprintf("invalid row of %q in the table %s: %s; when nobody uses the lock, delete the row", e.Name, e.Table,
		cause)
}

// Unwrap returns [driver.ErrInvalid] and the cause.
func (e *RowError) Unwrap() []error { return []error{driver.ErrInvalid, e.Err} }

// Isolate calls run for all items at once. If isMalformed says of the error that the row of an item
// is malformed, Isolate calls run for each half of the items, and so on. It calls malformed for
// each item that fails alone in this way. So a malformed row harms no other item, and costs no
// calls while there is none. Isolate returns any other error at once. The calls of run must be
// safe to repeat.
func Isolate[T any](items []T, isMalformed func(error) bool, run func([]T) error, malformed func(T, error)) error {
	err := run(items)
	switch {
	case err == nil, !isMalformed(err), len(items) == 0:
		return err
	case len(items) == 1:
		malformed(items[0], err)
		return nil
	}
	half := len(items) / 2
	if err := Isolate(items[:half], isMalformed, run, malformed); err != nil {
		return err
	}
	return Isolate(items[half:], isMalformed, run, malformed)
}

// IsolateAll is Isolate for items that store their own errors: any other error fails all of them.
func IsolateAll[T any](items []T, isMalformed func(error) bool, run func([]T) error, fail func(T, error)) {
	if err := Isolate(items, isMalformed, run, fail); err != nil {
		for _, item := range items {
			fail(item, err)
		}
	}
}
