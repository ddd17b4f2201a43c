package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/remotelock/wire"
)

// hostile is a text with which a store may attack a terminal, a log, or its reader.
const hostile = "ERR \x1b]0;owned\x07 \x1b]52;c;cm0gLXJm\x07 \x9b2J \u009b2J \u202eekaf\u2066 \r\x1b[2K\nsnib: all is well\x00\x7f\b\v\f \xff\xfe \u200b"

// TestHostileErrors checks that text from a store reaches the terminal as one line of graphic
// characters, on every path.
func TestHostileErrors(t *testing.T) {
	err := &snib.Error{Op: "acquire", Name: "na\x1bme", Backend: "redis", Err: fmt.Errorf("%w: %s", snib.ErrUnavailable, hostile)}
	var out bytes.Buffer
	a := &app{out: &out, err: &out, verbose: true}
	ways := map[string]func() string{
		"message": func() string { return message(errors.New(hostile)) },
		"plain":   func() string { return message(err) },
		"why":     func() string { return unavailableText(err) },
		"say":     func() string { a.messagef("%s", hostile); return out.String() },
		"note":    func() string { a.verbosef("warning: %s", hostile); return out.String() },
		"wait": func() string {
			acq := &acquirer{app: a, waitFlags: waitFlags{wait: &duration{}}, names: []string{"x"}, failure: err}
			(&waitLine{acq: acq}).update()
			return out.String()
		},
	}
	for name, way := range ways {
		out.Reset()
		text := way()
		if bytes.Count([]byte(text), []byte("\n")) != bytes.Count(out.Bytes(), []byte("\n")) || bytes.Count(out.Bytes(), []byte("\n")) > 1 {
			t.Errorf("%s: %q is more than a line", name, text)
		}
		if !utf8.ValidString(text) {
			t.Errorf("%s: %q is not valid UTF-8", name, text)
		}
		for _, r := range text {
			if r != '\n' && !unicode.IsGraphic(r) {
				t.Errorf("%s: %q has %q in it", name, text, r)
				break
			}
		}
		if !bytes.Contains([]byte(text), []byte(`\x1b]0;owned`)) {
			t.Errorf("%s: %q lacks the text of the store", name, text)
		}
	}
}

// TestHiddenPasswords checks that neither a message nor the line of a wait shows a password of the
// environment or the configuration.
func TestHiddenPasswords(t *testing.T) {
	t.Setenv(urlVar, "redis://user:secret@host")
	var out bytes.Buffer
	a := &app{err: &out, verbose: true, config: &config{Store: "postgres://:secret@db"}}
	failure := errors.New("redis://user:secret@host, postgres://:secret@db")
	a.messagef("%s", message(failure))
	(&waitLine{acq: &acquirer{app: a, waitFlags: waitFlags{wait: &duration{}}, names: []string{"x"}, failure: failure}}).update()
	if got := out.String(); strings.Contains(got, "secret") || strings.Count(got, "xxxxxx") != 4 {
		t.Errorf("snib prints %q, want two lines with two URLs, without passwords", got)
	}
}

// A closer is a function that implements io.Closer.
type closer func()

func (c closer) Close() error { c(); return nil }

// TestCloseSoon checks that a store that hangs does not keep the process from ending.
func TestCloseSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, hung := time.Now(), make(chan struct{})
		closeSoon(closer(func() { <-hung }))
		if took := time.Since(began); took != feedbackInterval {
			t.Errorf("closeSoon of a Close that hangs took %v, want %v", took, feedbackInterval)
		}
		close(hung)
		began = time.Now()
		closeSoon(closer(func() {}))
		if took := time.Since(began); took != 0 {
			t.Errorf("closeSoon took %v, want no time", took)
		}
	})
}

// TestPlainErrors checks that messages don't mention our packages, operations and options.
func TestPlainErrors(t *testing.T) {
	of := func(op, name string, err error) error {
		return &snib.Error{Op: op, Name: name, Backend: "redis", Err: err}
	}
	tests := []struct {
		err  error
		want string
	}{
		{of("acquire", "a", fmt.Errorf("%w: it is in use as a hash", snib.ErrKind)), "a is in use as another kind of lock: it is in use as a hash"},
		{of("release", "a b", snib.ErrLost), "a b is not held any more"},
		{of("acquire", "a", fmt.Errorf("%w: no answer within 5s", snib.ErrUnavailable)), "a is not granted: no answer within 5s"},
		{fmt.Errorf("here: %w", of("acquire", "a", snib.ErrHeld)), "here: a is taken"},
		{of("new", "", driver.Invalidf("Slots: none")), "invalid Slots: none"},
		{errors.New("snib: x"), "x"},
		{fmt.Errorf("redis://h/0: %w: %w", snib.ErrUnavailable, context.DeadlineExceeded), "the store does not answer (redis://h/0: context deadline exceeded)"},
		{fmt.Errorf("redis://h/0: %w", context.DeadlineExceeded), "the store does not answer (redis://h/0: context deadline exceeded)"},
	}
	for _, tt := range tests {
		if got := message(tt.err); got != tt.want {
			t.Errorf("message(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

// An unseenStore is a store that does not show its locks.
type unseenStore struct {
	driver.Driver
	why error
}

func (s unseenStore) Status(context.Context, string) (driver.Status, error) {
	return driver.Status{}, s.why
}

// TestUnavailableIsNotBusy checks that the exit code after a wait is 69 if no holder is known, also
// if that became so at the end of the wait, and not if the client may not see the holder. Of all
// this, --skip only hides that the lock is taken.
func TestUnavailableIsNotBusy(t *testing.T) {
	denied, down := &wire.Problem{Status: http.StatusForbidden}, fmt.Errorf("%w: the server hangs", snib.ErrUnavailable)
	for _, tt := range []struct {
		name            string
		cause, why      error
		want, wantSkips int
	}{
		{"outage", snib.ErrUnavailable, denied, exitUnavailable, exitUnavailable},
		{"outage with a reason", down, denied, exitUnavailable, exitUnavailable},
		{"outage since the last answer", snib.ErrHeld, down, exitUnavailable, exitUnavailable},
		{"held", snib.ErrHeld, denied, exitBusy, exitOK},
		{"one held, one of another kind", errors.Join(snib.ErrHeld, snib.ErrKind), denied, exitConfig, exitConfig},
		{"one held, one refused", errors.Join(snib.ErrHeld, snib.ErrInvalid), denied, exitConfig, exitConfig},
	} {
		for skip, want := range map[bool]int{false: tt.want, true: tt.wantSkips} {
			acq := &acquirer{app: &app{}, waitFlags: waitFlags{wait: &duration{set: true}}, names: []string{"x"}, skip: skip}
			s := &backend.Store{Driver: unseenStore{why: tt.why}}
			err := acq.explainRefusal(&snib.Error{Op: "acquire", Name: "x", Err: tt.cause}, s, exitBusy)
			if exitCode(err) != want || isSilent(err) {
				t.Errorf("%s, skip %t: %v with exit code %d, want a message and %d", tt.name, skip, err, exitCode(err), want)
			}
		}
	}
}

// TestRefusedBreakIsNoBreak checks that the audit log has breaks, and those that may have happened.
func TestRefusedBreakIsNoBreak(t *testing.T) {
	denied := &redislock.ReplyError{Text: "NOPERM this user has no permissions"}
	for err, want := range map[error]string{
		nil: "broken", snib.ErrUnavailable: "unknown", snib.ErrLost: "", fmt.Errorf("%w: a hash", snib.ErrKind): "",
		denied: "", &pgconn.PgError{Code: "42501"}: "", &mysql.MySQLError{Number: 1142}: "",
		&wire.Problem{Status: http.StatusForbidden}:       "",
		fmt.Errorf("%w: %w", snib.ErrUnavailable, denied): "unknown", // some nodes of Redlock, but no majority
	} {
		var log bytes.Buffer
		a := &app{err: &log}
		a.auditBreak(&backend.Store{Driver: memlock.New()}, "x", driver.Holding{}, "", err)
		if got := log.String(); (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%v: the log has %q, want the outcome %q", err, got, want)
		}
	}
}
