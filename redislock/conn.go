package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A Conn is what the driver needs from a Redis client. [New] and [Open] make one from a rueidis
// client, and package redislock/goredis makes one from a go-redis client. It is safe for
// concurrent use.
//
// A Conn repeats a call only if the server has rejected it without running it, as with MOVED or
// NOSCRIPT, and then repeats the commands that follow the script, too: WAITAOF must come after it.
// When an answer is lost it leaves the retry to the driver: only the driver knows that its scripts
// tolerate that.
type Conn interface {
	// Eval makes calls, in one pipeline for each server, and returns one reply for each of them.
	// All keys of a call lie in one slot. Calls for one slot run in order, on one connection. A
	// command without keys belongs to the call before it. Eval returns soon after the deadline of
	// ctx; it need not notice a cancellation. It must not retain calls, or what they point to.
	Eval(ctx context.Context, calls ...Call) []Reply

	// Subscribe listens to a channel until ctx is done or the connection is lost, and returns
	// the reason. It calls ready once the server has confirmed the subscription, and message
	// with each payload, in order and never concurrently. If sharded is set it uses SSUBSCRIBE.
	Subscribe(ctx context.Context, channel string, sharded bool, ready func(), message func(payload string)) error

	// Masters returns the servers that accept writes: one, or every master of a Cluster.
	Masters(ctx context.Context) ([]Node, error)

	// IsCluster reports whether the client talks to a Cluster. IsSentinel reports whether it
	// asks Sentinels for the master.
	IsCluster() bool
	IsSentinel() bool

	// Close frees what belongs to the Conn, but not the client that it was made from.
	Close()
}

// A Node is one server.
type Node interface {
	// Do sends one command and returns what [LinesOf] makes of the reply.
	Do(ctx context.Context, command ...string) (lines []string, err error)
}

// A Call is one run of a script or, if Script is nil, one command: Command, then the Keys, then
// the Args.
type Call struct {
	Script     *Script
	Command    string
	Keys, Args []string
}

// A Reply is the result of a call: what [LinesOf] makes of it, or an error.
type Reply struct {
	Lines []string
	Err   error
}

// LinesOf returns the reply of a command as lines: the elements of arrays, also of those in others,
// and the keys and values of maps, in turn; numbers in decimal, and no line for nil.
func LinesOf(reply any) (lines []string) {
	switch r := reply.(type) {
	case nil:
		return nil
	case string:
		return []string{r}
	case []any:
		lines = make([]string, 0, len(r))
		for _, element := range r {
			if line, ok := element.(string); ok {
				lines = append(lines, line)
			} else {
				lines = append(lines, LinesOf(element)...)
			}
		}
		return lines
	case map[string]any:
		for key, value := range r {
			lines = append(append(lines, key), LinesOf(value)...)
		}
		return lines
	case map[any]any:
		for key, value := range r {
			lines = append(append(lines, LinesOf(key)...), LinesOf(value)...)
		}
		return lines
	}
	return []string{fmt.Sprint(reply)}
}

// A Script is Lua that runs in Redis.
type Script = rediskit.Script

// transientCodes are the codes of errors by which a server says that it can't serve a call at
// the moment.
var transientCodes = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY", "MOVED", "ASK", "UNBLOCKED",
	"NOSCRIPT", "OOM",
	"MISCONF", // the disk is full
}

// transientTexts are parts of transient errors that have no code of their own.
var transientTexts = [...]string{rediskit.TooManyClients, nonLocalKey}

// nonLocalKey is in the error of a script that found a key missing, after it had begun, whose slot
// is moving to another node. That may be a key that the script has deleted itself.
const nonLocalKey = "non local key"

// transientCode returns the code of an error reply that is transient, or "". Before Redis 7 the
// code stands within the text of a script's error.
func transientCode(text string) string {
	for _, code := range transientCodes {
		if strings.HasPrefix(text, code+" ") || text == code || strings.Contains(text, "-"+code+" ") {
			return code
		}
	}
	for _, part := range transientTexts {
		if strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// A ReplyError is an error reply of the server. An error of another type that a [Conn] returns
// means that there was no answer.
type ReplyError struct{ Text string }

// Error returns the text, without the part that says in which script the error occurred.
func (e *ReplyError) Error() string {
	if transientCode(e.Text) == "OOM" {
		return "OOM: the server's memory is full (maxmemory)"
	}
	// The name of the script comes last. Before it, Redis 8 and Valkey 9 write "ACL failure in
	// script: ", and then which permission is missing.
	if i := strings.LastIndex(e.Text, " script: "); i >= 0 && strings.Contains(e.Text[i:], "on @user_script:") {
		return e.Text[:i]
	}
	return e.Text
}

// isTransient reports whether a retry may succeed: the call was not answered, or the server was
// not ready.
func isTransient(err error) bool {
	var replyErr *ReplyError
	switch {
	case errors.As(err, &replyErr):
		return transientCode(replyErr.Text) != ""
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrKind), errors.Is(err, driver.ErrInvalid),
		errors.Is(err, driver.ErrClosed):
		return false
	}
	return !errors.As(err, new(*tls.CertificateVerificationError)) && !errors.As(err, new(*badAnswer))
}

// codeOf is transientCode for any error.
func codeOf(err error) string {
	if reply, ok := errors.AsType[*ReplyError](err); ok {
		return transientCode(reply.Text)
	}
	return ""
}

// isMoving reports whether a server could not serve a call because some, but not all, of its
// keys have moved to another node.
func isMoving(err error) bool {
	return slices.Contains([]string{"TRYAGAIN", "ASK", nonLocalKey}, codeOf(err))
}

// asUnavailable makes a transient error match [driver.ErrUnavailable].
func asUnavailable(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.As(err, new(*queuedError)) || !isTransient(err) {
		return err
	}
	if codeOf(err) == rediskit.TooManyClients {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrFull, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// connectError is asUnavailable for the first contact, when it is not yet known whether the
// server is usable at all. A server that hangs up may have too many clients, or expect TLS: the
// client can't tell.
func connectError(err error) error {
	var timeout net.Error
	var unknown *net.DNSError
	switch {
	case errors.As(err, new(*ReplyError)):
		if isTransient(err) {
			return &unreachableError{err}
		}
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return err
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return &unreachableError{err}
	}
	return err
}

// An unreachableError matches [driver.ErrUnavailable] and has the text of its cause alone:
// without a driver there is no lock that could be unavailable.
type unreachableError struct{ cause error }

func (e *unreachableError) Error() string { return e.cause.Error() }

func (e *unreachableError) Unwrap() []error {
	if codeOf(e.cause) == rediskit.TooManyClients {
		return []error{driver.ErrUnavailable, driver.ErrFull, e.cause}
	}
	return []error{driver.ErrUnavailable, e.cause}
}

// A badAnswer is an answer that none of our scripts gives.
type badAnswer struct{ text string }

func (e *badAnswer) Error() string { return e.text }

func badAnswerf(format string, args ...any) error { return &badAnswer{fmt.Sprintf(format, args...)} }
