package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// These errors say why a node that answers takes no part.
const (
	errBlank   driver.Sentinel = "it is new, or has lost its memory"
	errWaiting driver.Sentinel = "it restarted, and is kept out until the leases that it may have forgotten are over"
	errNoLease driver.Sentinel = "it does not have the lease"
)

// A noMajorityError says that too few nodes take part in a request. It matches errNoMajority, what
// nodes answered, and ECONNREFUSED, but not that a connection timed out: that says nothing about
// the caller's request. It matches [driver.ErrUnavailable] unless no wait can help; then it matches
// why.
type noMajorityError struct {
	text    string
	matches []error
	keptOut int // restarted nodes that are not admitted yet
}

func (e *noMajorityError) Error() string { return e.text }

func (e *noMajorityError) Unwrap() []error { return e.matches }

// noMajority describes the nodes that take no part. It is given the error of each node, or nil
// for a node that takes part.
func (d *Driver) noMajority(errs []error) error {
	e := &noMajorityError{matches: []error{errNoMajority}}
	var why []string
	var denied []error
	remedy, full := "", 0
	for i, err := range errs {
		if err == errDown { //nolint:errorlint // as we gave it
			err = cmp.Or(d.nodes[i].downReason(), err)
		}
		if err == nil {
			continue
		}
		why = append(why, fmt.Sprintf("%s: %v", d.nodes[i].address, err))
		if answerOf(err) != "" || errors.Is(err, syscall.ECONNREFUSED) {
			e.matches = append(e.matches, err)
		}
		switch {
		case err == errBlank: //nolint:errorlint // as we gave it
			remedy = ": if they are new, run snib redlock init; otherwise, "
			e.keptOut++
		case err == errWaiting: //nolint:errorlint // as above
			remedy = cmp.Or(remedy, ": ")
			e.keptOut++
		case isPermanent(err):
			denied = append(denied, err)
		case strings.Contains(answerOf(err), rediskit.TooManyClients):
			full++
		}
	}
	e.text = fmt.Sprintf("%d of %d nodes take part, which is no majority", len(d.nodes)-len(why), len(d.nodes))
	if len(why) > 0 {
		e.text += " (" + strings.Join(why, "; ") + ")"
	}
	if len(d.nodes)-len(denied) < d.params.Quorum() {
		e.matches = append(e.matches, denied...)
		return e
	}
	e.matches = append(e.matches, driver.ErrUnavailable)
	if len(d.nodes)-full < d.params.Quorum() {
		e.matches = append(e.matches, driver.ErrFull)
	}
	e.text = driver.ErrUnavailable.Error() + ": " + e.text
	if remedy != "" {
		e.text += fmt.Sprintf("%sthey take part within %v", remedy, d.params.Quarantine().Round(time.Second))
	}
	return e
}
