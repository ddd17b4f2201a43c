package redlock

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// reasonsOf returns, by node, why the nodes did not do what they were asked, and nil for
// those that did.
func reasonsOf(replies []reply) []error {
	errs := make([]error, len(replies))
	for i, r := range replies {
		if errs[i] = cmp.Or(r.err, refusal(r.text)); r.err == nil && r.text == "n" {
			errs[i] = errNoLease
		}
	}
	return errs
}

// refusal returns the error of a node that is closed, given its answer, or nil if it is not.
func refusal(text string) error {
	switch word, rest, _ := strings.Cut(text, " "); {
	case text == "u blank":
		return errBlank
	case word == "u":
		return errWaiting
	case word == "m":
		return driver.Invalidf("node: it belongs to another list of nodes or MaxTTL, as %s", quoted(rest))
	}
	return nil
}

// answerOf returns the error that a server has answered, or "".
func answerOf(err error) string {
	refused, _ := errors.AsType[rediskit.Refusal](err)
	return string(refused)
}

// isPermanent reports whether a retry can't help.
func isPermanent(err error) bool {
	var unknown *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	if text := answerOf(err); text != "" {
		return rediskit.IsDenied(text) || strings.HasPrefix(text, "WRONGTYPE ")
	}
	return errors.As(err, &unknown) && unknown.IsNotFound || errors.Is(err, driver.ErrKind) ||
		errors.Is(err, driver.ErrInvalid) || errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert)
}

// quoted makes text from a store safe to print.
func quoted(text string) string {
	const most = 300
	return strconv.QuoteToGraphic(text[:min(len(text), most)])
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

// sanitize reduces a server's error to one line without control characters.
func sanitize(err error) error {
	if e, ok := rueidis.IsRedisErr(err); ok {
		return rediskit.Refusal(printable(e.Error()))
	}
	return err
}
