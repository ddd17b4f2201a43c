package redlock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
)

// Why a node that answers takes no part.
const (
	errBlank   driver.Sentinel = "it is new, or has lost its memory"
	errWaiting driver.Sentinel = "it restarted, and is kept out until no lease is left that it may have forgotten"
	errNotOurs driver.Sentinel = "the lock's key there is not ours"
)

// A silence says that too few nodes take part in what was asked. It matches errNoMajority; [driver.ErrUnavailable], unless so many nodes
// refuse for good that no wait can help; and what nodes answered instead, such as that the password is wrong, but not how others were out of
// reach: that is no answer to the caller's own question.
type silence struct {
	text string
	is   []error
	kept int // nodes that restarted and are kept out
}

func (e *silence) Error() string { return e.text }

func (e *silence) Unwrap() []error { return e.is }

// silent describes the nodes that take no part, by the error that each one gave; nil of one that does.
func (d *Driver) silent(errs []error) error {
	e := &silence{is: []error{errNoMajority}}
	var why []string
	blank, denied := 0, 0
	for i, err := range errs {
		if err == errDown { //nolint:errorlint // as we gave it
			if cause := d.nodes[i].why(); cause != nil {
				err = cause
			}
		}
		if err == nil {
			continue
		}
		why = append(why, fmt.Sprintf("%s: %v", d.nodes[i].address, clean(err)))
		var answer *rueidis.RedisError
		if errors.As(err, &answer) {
			e.is = append(e.is, answer)
		}
		switch {
		case err == errBlank: //nolint:errorlint // as we gave it
			blank++
			e.kept++
		case err == errWaiting: //nolint:errorlint // as we gave it
			e.kept++
		case isPermanent(err):
			denied++
		}
	}
	e.text = fmt.Sprintf("%d of %d nodes take part, which is no majority", len(d.nodes)-len(why), len(d.nodes))
	if len(why) > 0 {
		e.text += " (" + strings.Join(why, "; ") + ")"
	}
	if len(d.nodes)-denied >= d.params.Quorum() {
		e.is = append(e.is, driver.ErrUnavailable)
		e.text = fmt.Sprintf("%v: %s%s", driver.ErrUnavailable, e.text, d.remedy(e.kept, blank))
	}
	return e
}

// remedy says what helps against nodes that are kept out.
func (d *Driver) remedy(kept, blank int) string {
	if kept == 0 {
		return ""
	}
	wait := fmt.Sprintf("they take part within %v", d.params.Quarantine().Round(time.Second))
	if d.conf.loss == Refuse {
		wait += ", or after snib redlock recover if a majority has forgotten"
	}
	if blank == 0 {
		return ": " + wait
	}
	return ": if they are new, run snib redlock init; else " + wait
}

// reasonsOf returns why nodes did not do what they were asked, by node; nil of those that did.
func reasonsOf(replies []reply) []error {
	errs := errorsOf(replies)
	for i, r := range replies {
		if errs[i] != nil || !r.asked {
			continue
		}
		switch word, rest, _ := strings.Cut(r.text, " "); word {
		case "u":
			errs[i] = keptOut(rest)
		case "m":
			errs[i] = stray(rest)
		case "n":
			errs[i] = errNotOurs
		}
	}
	return errs
}

// keptOut is what a node says that is not admitted.
func keptOut(text string) error {
	if text == "blank" {
		return errBlank
	}
	return errWaiting
}

// stray is what a node says that belongs to others: its address and its cluster.
func stray(text string) error {
	return fmt.Errorf("%w node: it belongs to another list of nodes, as %s", driver.ErrInvalid, quoted(text))
}

// quoted writes text of a store for people and terminals.
func quoted(text string) string {
	const most = 300
	if len(text) > most {
		text = text[:most]
	}
	return strconv.QuoteToGraphic(text)
}

// isPermanent reports whether it is of no use to ask again.
func isPermanent(err error) bool {
	var answer *rueidis.RedisError
	var unknown *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &answer):
		word, _, _ := strings.Cut(answer.Error(), " ")
		return word == "WRONGPASS" || word == "NOAUTH" || word == "NOPERM" || word == "DENIED" || word == "WRONGTYPE"
	case errors.As(err, &unknown):
		return unknown.IsNotFound
	}
	return errors.Is(err, driver.ErrInvalid) || errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert)
}

// A oneLine is an error that a server answered, in one line that a terminal may show.
type oneLine struct {
	text string
	err  error
}

func (e *oneLine) Error() string { return e.text }

func (e *oneLine) Unwrap() error { return e.err }

// clean makes one line of an error that a server answered, without what would control a terminal.
func clean(err error) error {
	var line *oneLine
	if e, ok := rueidis.IsRedisErr(err); ok && !errors.As(err, &line) {
		return &oneLine{graphic(e.Error()), err}
	}
	return err
}

// graphic escapes what is not to be seen, and says in words that a node has no memory left.
func graphic(text string) string {
	quoted := quoted(strings.TrimSpace(text))
	text = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if strings.HasPrefix(text, "OOM") {
		return "its memory is full: raise its maxmemory, or delete what it keeps beside locks (" + text + ")"
	}
	return text
}
