package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// The exit codes, from sysexits.h, timeout(1) and the shells. 79 is the first one after sysexits.
const (
	exitOK            = 0
	exitNotHeld       = 1 // snib release
	exitFound         = 1 // snib leaks, snib doctor: something is wrong
	exitUsage         = 64
	exitUnavailable   = 69
	exitBug           = 70
	exitOutput        = 74
	exitBusy          = 75
	exitNotAllowed    = 77
	exitConfig        = 78
	exitLost          = 79
	exitTimeout       = 124
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the signal's number
)

// A failure is an error with the exit code that it leads to. Without a message nothing is printed.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return "" // printed by nobody
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error { return fail(exitUsage, format, args...) }

// silent ends the program with code and without a word.
func silent(code int) error {
	if code == exitOK {
		return nil
	}
	return &failure{code: code}
}

func isSilent(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.err == nil
}

// exitCode is the exit code for err.
func exitCode(err error) int {
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, backend.ErrConfig), errors.Is(err, snib.ErrKind):
		return exitConfig
	case unavailable(err):
		return exitUnavailable
	case errors.Is(err, snib.ErrHeld):
		return exitBusy
	case errors.Is(err, snib.ErrLost):
		return exitLost
	case errors.Is(err, snib.ErrInvalid):
		return exitUsage
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), backend.Denied(err):
		return exitNotAllowed
	}
	return exitUnavailable
}

// noAnswer is what is known of a store that hangs.
const noAnswer = "the store does not answer"

// message is err as one line that can't upset a terminal, without the name of this program, which the line begins with anyway.
func message(err error) string {
	text := strings.TrimPrefix(plain(err), "snib: ")
	text = strings.ReplaceAll(text, string(snib.ErrUnavailable)+": ", "") // the rest says how
	if strings.Contains(text, context.DeadlineExceeded.Error()) && !strings.Contains(text, "no answer") {
		text = noAnswer + " (" + text + ")"
	}
	return oneLine(text)
}

// plain is the text of err with the lock's name in the place of what package snib says of its operation and its backend.
func plain(err error) string {
	text := err.Error()
	var e *snib.Error
	if !errors.As(err, &e) {
		return text
	}
	cause := e.Err.Error()
	if e.Name != "" {
		cause = printable(e.Name) + ": " + cause
		for sentinel, words := range map[driver.Sentinel]string{
			snib.ErrKind: "is in use as another kind of lock", snib.ErrLost: "is not held any more",
			snib.ErrUnavailable: "is not granted", snib.ErrHeld: "is taken",
		} {
			if rest, ok := strings.CutPrefix(e.Err.Error(), string(sentinel)); ok {
				cause = printable(e.Name) + " " + words + rest
			}
		}
	}
	return strings.Replace(text, e.Error(), cause, 1)
}

// unavailable reports that the store did not grant a lock, although nobody is known to hold it.
func unavailable(err error) bool {
	_, grace := backend.Grace(err)
	return grace || errors.Is(err, snib.ErrUnavailable)
}
