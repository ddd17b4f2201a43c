package rediskit

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// A HeldError says how long the present holders' leases last. It matches [driver.ErrHeld].
type HeldError struct {
	Left time.Duration // negative if a key has no expiry, which a foreign client may have made
}

func (e *HeldError) Error() string {
	if e.Left < 0 {
		return fmt.Sprintf("%v, by a key that never ends", driver.ErrHeld)
	}
	return fmt.Sprintf("%v; its lease lasts another %v", driver.ErrHeld, e.Left)
}

// Is reports whether target is [driver.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == driver.ErrHeld }

// A Refusal is the error of a command in a script, which the script has answered as text.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// IsDenied reports whether text, the error reply of a server, says that the client has no valid
// login, or that its user lacks a permission.
func IsDenied(text string) bool {
	for _, kind := range []string{"NOAUTH ", "WRONGPASS ", "NOPERM ", "DENIED "} {
		if strings.HasPrefix(text, kind) || strings.Contains(text, "-"+kind) {
			return true
		}
	}
	// What a script's commands may not do has the code ERR. Redis 7.2 and Valkey have changed the
	// words.
	return strings.Contains(text, "The user executing the script can't") || strings.Contains(text, "ACL failure in script")
}

// IsDialError reports whether a request failed because there was no connection to send it on.
func IsDialError(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// TooManyClients is in the error of a server that has reached its maxclients.
const TooManyClients = "max number of clients reached"

// CheckID rejects the id of a request that can't be stored unchanged, with [driver.ErrInvalid]. The
// error does not show the id, which is a secret.
func CheckID(id string) error {
	if !utf8.ValidString(id) {
		return driver.Invalidf("id: it is not valid UTF-8")
	}
	return nil
}
