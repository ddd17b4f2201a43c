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

// The exit codes, from sysexits.h, timeout(1) and the shells. 79 is the first one
// after those of sysexits.h.
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
	exitSignal        = 128 // plus the signal's number
)

// An exitError is an error with its exit code. If err is nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (f *exitError) Error() string {
	if f.err == nil {
		return "" // never printed
	}
	return f.err.Error()
}

func (f *exitError) Unwrap() error { return f.err }

func failf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error { return failf(exitUsage, format, args...) }

// silentExit ends the program with code, without a message.
func silentExit(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// taken returns the error for a lock that somebody holds. With --quiet, nothing is said.
func (a *app) taken(code int, text string) error {
	if a.quiet {
		return silentExit(code)
	}
	return failf(code, "%s", text)
}

func isSilent(err error) bool {
	var f *exitError
	return errors.As(err, &f) && f.err == nil
}

// exitCode returns the exit code for err.
func exitCode(err error) int {
	var f *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, backend.ErrConfig), errors.Is(err, snib.ErrKind):
		return exitConfig
	case errors.Is(err, snib.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, snib.ErrHeld):
		return exitBusy
	case errors.Is(err, snib.ErrLost):
		return exitLost
	case errors.Is(err, snib.ErrInvalid):
		return exitUsage
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), backend.Denied(err):
		return exitNotAllowed
	case backend.Mismatched(err), backend.Answered(err): // and a retry would not help
		return exitConfig
	}
	return exitUnavailable
}

// noAnswer describes a store that hangs.
const noAnswer = "the store does not answer"

// message returns err as one line that is safe to print on a terminal. It drops the name of
// this program, which begins the line anyway.
func message(err error) string {
	text := strings.TrimPrefix(plain(err), "snib: ")
	text = strings.ReplaceAll(text, string(snib.ErrUnavailable)+": ", "") // the rest says how
	if strings.Contains(text, context.DeadlineExceeded.Error()) && !strings.Contains(text, "no answer") {
		text = noAnswer + " (" + text + ")"
	}
	return oneLine(text)
}

// plain returns the text of err, with the lock's name in place of the operation and the backend
// that package snib reports.
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
