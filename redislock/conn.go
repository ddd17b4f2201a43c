package redislock

import (
	"context"
	"crypto/sha1" //nolint:gosec // the digest by which Redis knows a script; nothing rests on its strength
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/sniblock/snib/driver"
)

// A Conn is what the driver needs of a client of Redis. [New] and [Open] make one of rueidis; package redislock/goredis makes one of go-redis.
// It is safe for concurrent use.
//
// A Conn repeats a call only if the server has refused it unseen, as with MOVED or NOSCRIPT, and leaves it to the driver to ask again
// when an answer is lost: only the driver knows that its scripts bear it.
type Conn interface {
	// Eval runs scripts, in one pipeline for each server, and returns as many replies. All keys of a call lie in one slot; calls
	// for one slot run in order. It should return when ctx is done. It keeps nothing of calls.
	Eval(ctx context.Context, calls ...Call) []Reply

	// Subscribe listens to a channel until ctx is done or the connection is lost, and says why. It calls ready once the server has
	// confirmed the subscription, and message with each payload, in order and not at the same time. Sharded asks for
	// SSUBSCRIBE.
	Subscribe(ctx context.Context, channel string, sharded bool, ready func(), message func(payload string)) error

	// Masters returns the servers that may be written to: one, or each of a Cluster's.
	Masters(ctx context.Context) ([]Node, error)

	// IsCluster reports whether the client speaks to a Cluster, and IsSentinel whether it asks Sentinels for the master.
	IsCluster() bool
	IsSentinel() bool

	// Close frees what belongs to the Conn, and not a client that it was made from.
	Close()
}

// A Node is one server.
type Node interface {
	// Do sends one command and returns the reply as string, int64, nil, []any of these, or map[string]any.
	Do(ctx context.Context, command ...string) (any, error)
}

// A Call is one run of a script.
type Call struct {
	Script     *Script
	Keys, Args []string
}

// A Reply is what a run of a script returned: an array of strings.
type Reply struct {
	Lines []string
	Err   error
}

// A Script is Lua that runs in Redis.
type Script struct {
	Text string
	SHA1 string // in hexadecimal, for EVALSHA
}

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// refusals are the errors with which a server says that it could not do anything for the moment.
var refusals = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY", "MOVED", "ASK", "UNBLOCKED", "NOSCRIPT", "OOM",
}

// refusalTexts are parts of such errors that have no code of their own: too many connections, and a script whose keys are on their way to
// another node.
var refusalTexts = [...]string{tooManyClients, "non local key"}

// tooManyClients is how a server refuses a connection because of its maxclients.
const tooManyClients = "max number of clients reached"

// refusal returns the code of an error reply that is a passing one, or "". Before Redis 7 it stands within the text of a script's error.
func refusal(text string) string {
	for _, code := range refusals {
		if strings.HasPrefix(text, code+" ") || text == code || strings.Contains(text, "-"+code+" ") {
			return code
		}
	}
	for _, part := range refusalTexts {
		if strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// A ReplyError is an error that the server answered. What a [Conn] returns of other types means that there was no answer.
type ReplyError struct{ Text string }

// Error is the text, without what says in which script of ours the server met the error.
func (e *ReplyError) Error() string {
	if refusal(e.Text) == "OOM" {
		return "OOM: the server's memory is full (maxmemory)"
	}
	text, _, _ := strings.Cut(e.Text, " script: ")
	return text
}

// isTransient reports whether asking again may help: the call was not answered, or the server was not ready.
func isTransient(err error) bool {
	var answered *ReplyError
	switch {
	case errors.As(err, &answered):
		return refusal(answered.Text) != ""
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrKind), errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
		return false
	}
	return !errors.As(err, new(*tls.CertificateVerificationError)) && !errors.As(err, new(*badAnswer))
}

// isMoving reports whether a server could not serve a call because some of its keys, and not all, are at another node by now.
func isMoving(err error) bool {
	var answered *ReplyError
	return errors.As(err, &answered) && slices.Contains([]string{"TRYAGAIN", "ASK", "non local key"}, refusal(answered.Text))
}

// unavailable makes an error match [driver.ErrUnavailable] if another try may not see it.
func unavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.As(err, new(*queued)) || !isTransient(err) {
		return err
	}
	if isFull(err) {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrFull, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// isFull reports whether a server refused a connection because it has too many.
func isFull(err error) bool {
	var answered *ReplyError
	return errors.As(err, &answered) && refusal(answered.Text) == tooManyClients
}

// outOfReach is unavailable for the first contact, when it is not known yet that there is a server of ours at all. A server that hangs up
// may have too many clients, or want TLS: nobody can tell.
func outOfReach(err error) error {
	var timeout net.Error
	var unknown *net.DNSError
	switch {
	case errors.As(err, new(*ReplyError)):
		if isTransient(err) {
			return &unreachable{err}
		}
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return err
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return &unreachable{err}
	}
	return err
}

// unreachable matches [driver.ErrUnavailable], and says only what it wraps: where there is no driver yet there is no lock that is withheld.
type unreachable struct{ cause error }

func (e *unreachable) Error() string { return e.cause.Error() }

func (e *unreachable) Unwrap() []error {
	if isFull(e.cause) {
		return []error{driver.ErrUnavailable, driver.ErrFull, e.cause}
	}
	return []error{driver.ErrUnavailable, e.cause}
}

// A badAnswer is one that no script of ours gives.
type badAnswer struct{ text string }

func (e *badAnswer) Error() string { return e.text }

func answeredf(format string, args ...any) error { return &badAnswer{fmt.Sprintf(format, args...)} }
