package cli

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib"
)

// holds are the locks that one command holds, in the order in which it acquired them. There is at
// least one.
type holds []*snib.Lock

// String returns the names of the locks, for messages.
func (hs holds) String() string { return printableNames(convert(hs, (*snib.Lock).Name)) }

// printableNames returns names as a list, for messages.
func printableNames(names []string) string { return strings.Join(convert(names, printable), ", ") }

// validity returns for how long all of the holds are valid.
func (hs holds) validity() time.Duration { return slices.Min(convert(hs, (*snib.Lock).Validity)) }

// lost returns a channel that is closed when one of the holds ends.
func (hs holds) lost() <-chan struct{} {
	lost, once := make(chan struct{}), new(sync.Once)
	for _, lock := range hs {
		context.AfterFunc(lock.Context(), func() { once.Do(func() { close(lost) }) })
	}
	return lost
}

// cause returns why the first of the holds ended, or nil if none has.
func (hs holds) cause() error {
	for _, lock := range hs {
		if err := context.Cause(lock.Context()); err != nil {
			return err
		}
	}
	return nil
}

// release releases the holds after an acquisition that failed. Nobody is told of an error: the
// leases end by themselves.
func (hs holds) release() {
	var wg sync.WaitGroup
	for _, lock := range hs {
		wg.Go(func() { _ = releaseSoon(lock) })
	}
	wg.Wait()
}
