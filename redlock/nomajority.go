package redlock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// These errors say why a node that answers takes no part.
const (
	errBlank   driver.Sentinel = "it is new, or has lost its memory"
	errWaiting driver.Sentinel = "it restarted, and is kept out until the leases that it may have forgotten are over"
	errNotOurs driver.Sentinel = "the key of the lock there belongs to another owner"
)

// A noMajorityError says that too few nodes take part in a request. It matches errNoMajority.
// It matches [driver.ErrUnavailable] too, unless so many nodes refuse permanently that no wait
// can help. It also matches the errors that nodes answered, such as a wrong password, and
// ECONNREFUSED. It does not match other errors of nodes that could not be reached, such as the
// timeout of a connection, because these say nothing about the caller's request.
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
	blank, denied := 0, 0
	for i, err := range errs {
		if err == errDown { //nolint:errorlint // as we gave it
			if cause := d.nodes[i].downReason(); cause != nil {
				err = cause
			}
		}
		if err == nil {
			continue
		}
		why = append(why, fmt.Sprintf("%s: %v", d.nodes[i].address, sanitize(err)))
		var answer *rueidis.RedisError
		if errors.As(err, &answer) {
			e.matches = append(e.matches, answer)
		}
		var refused rediskit.Refusal
		if errors.As(err, &refused) {
			e.matches = append(e.matches, refused)
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			e.matches = append(e.matches, syscall.ECONNREFUSED)
		}
		switch {
		case err == errBlank: //nolint:errorlint // as we gave it
			blank++
			e.keptOut++
		case err == errWaiting: //nolint:errorlint // as we gave it
			e.keptOut++
		case isPermanent(err):
			denied++
		}
	}
	e.text = fmt.Sprintf("%d of %d nodes take part, which is no majority", len(d.nodes)-len(why), len(d.nodes))
	if len(why) > 0 {
		e.text += " (" + strings.Join(why, "; ") + ")"
	}
	if len(d.nodes)-denied >= d.params.Quorum() {
		e.matches = append(e.matches, driver.ErrUnavailable)
		e.text = fmt.Sprintf("%v: %s%s", driver.ErrUnavailable, e.text, d.remedy(e.keptOut, blank))
	}
	return e
}

// remedy says what helps if nodes are not admitted.
func (d *Driver) remedy(keptOut, blank int) string {
	if keptOut == 0 {
		return ""
	}
	wait := fmt.Sprintf("they take part within %v", d.params.Quarantine().Round(time.Second))
	if blank == 0 {
		return ": " + wait
	}
	return ": if they are new, run snib redlock init; otherwise, " + wait
}

// reasonsOf returns, by node, why the nodes did not do what they were asked, and nil for
// those that did.
func reasonsOf(replies []reply) []error {
	errs := errorsOf(replies)
	for i, r := range replies {
		if errs[i] != nil || !r.sent {
			continue
		}
		switch word, rest, _ := strings.Cut(r.text, " "); word {
		case "u":
			errs[i] = unadmittedError(rest)
		case "m":
			errs[i] = mismatchError(rest)
		case "n":
			errs[i] = errNotOurs
		}
	}
	return errs
}

// unadmittedError returns the error of a node that is not admitted, given its answer.
func unadmittedError(text string) error {
	if text == "blank" {
		return errBlank
	}
	return errWaiting
}

// mismatchError returns the error of a node that belongs to another cluster, given its answer:
// its address and its cluster.
func mismatchError(text string) error {
	return driver.Invalidf("node: it belongs to another list of nodes, as %s", quoted(text))
}

// quoted makes text from a store safe to print.
func quoted(text string) string {
	const most = 300
	if len(text) > most {
		text = text[:most]
	}
	return strconv.QuoteToGraphic(text)
}

// isPermanent reports whether a retry can't help.
func isPermanent(err error) bool {
	var answer *rueidis.RedisError
	var refused rediskit.Refusal
	var unknown *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &answer):
		return isPermanentText(answer.Error())
	case errors.As(err, &refused):
		return isPermanentText(string(refused))
	case errors.As(err, &unknown):
		return unknown.IsNotFound
	}
	return errors.Is(err, driver.ErrInvalid) || errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert)
}

// isPermanentText is isPermanent for the text of a server's error.
func isPermanentText(text string) bool {
	return rediskit.IsDenied(text) || strings.HasPrefix(text, "WRONGTYPE ")
}

// A singleLineError is a server's error, reduced to one line that is safe on a terminal.
type singleLineError struct {
	text string
	err  error
}

func (e *singleLineError) Error() string { return e.text }

func (e *singleLineError) Unwrap() error { return e.err }

// sanitize reduces a server's error to one line without control characters.
func sanitize(err error) error {
	var line *singleLineError
	if e, ok := rueidis.IsRedisErr(err); ok && !errors.As(err, &line) {
		return &singleLineError{printable(e.Error()), err}
	}
	return err
}

// printable escapes characters that are not printable, and explains the error of a node that is
// out of memory.
func printable(text string) string {
	quoted := quoted(strings.TrimSpace(text))
	text = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if strings.HasPrefix(text, "OOM") {
		return "its memory is full: raise its maxmemory, or delete keys that are not locks (" + text + ")"
	}
	return text
}
