package cli

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// onTerminal reports whether standard error is a terminal.
func onTerminal() bool { return term.IsTerminal(int(syscall.Stderr)) } //nolint:unconvert // a handle on Windows

// canRedraw reports whether standard error is a terminal on which a line can be drawn again. An old
// console of Windows can't, and nothing tells which it is.
func canRedraw() bool {
	return onTerminal() && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"
}

// wanted names what the command waits for.
func (acq *acquirer) wanted() string {
	if len(acq.names) > 1 {
		return printable(acq.names[0]) + " or another"
	}
	return printable(acq.names[0])
}

// A waitLine shows what the command waits for. On a terminal it is one line, redrawn every
// second. On a terminal that can't redraw, it is printed once. Without a terminal it is
// printed once, and only with --verbose or if the store does not serve us.
type waitLine struct {
	acq   *acquirer
	store *backend.Store // nil until the store is open
	drawn bool           // it is on the terminal
	done  bool           // nothing more is to be printed
}

func (l *waitLine) update() {
	redraws := canRedraw()
	id, failure := l.acq.state()
	usual := failure == nil && !onTerminal() && !l.acq.verbose
	if l.done || usual || l.acq.quiet || l.acq.noWait && !redraws {
		return
	}
	text := oneLine(l.acq.hidePasswords("snib: waiting for " + l.acq.wanted() + l.reason(failure, id)))
	if !redraws {
		l.done = true
		fmt.Fprintln(l.acq.err, text)
		return
	}
	l.draw(text)
}

// reason returns what the command waits for: failure, or else a first answer, or a holder, and how
// many others wait before the attempt id.
func (l *waitLine) reason(failure error, id string) string {
	switch {
	case failure != nil:
		return ": " + unavailableText(failure)
	case l.store == nil:
		return ": " + noAnswer // as far as is known: an answer may come soon
	}
	ctx, cancel := answerWithin(context.Background(), feedbackInterval)
	defer cancel()
	st, err := l.store.Status(ctx, l.acq.names[0])
	if err != nil {
		return ": " + message(err) // it may pass; if not, the wait itself ends with it
	}
	text := ""
	if ahead := slices.IndexFunc(st.Waiters, func(w driver.Waiting) bool { return w.ID == id }); ahead > 0 {
		text = fmt.Sprintf(", %d ahead", ahead)
	}
	if len(st.Holders) == 0 {
		return text
	}
	h := st.Holders[0]
	text += ": " + heldBy(h)
	if n := len(st.Holders) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ", " + strings.TrimPrefix(describeEnd(h), "its ")
}

// draw replaces the line on the terminal.
func (l *waitLine) draw(text string) {
	if width, _, err := term.GetSize(int(syscall.Stderr)); err == nil { //nolint:unconvert // as above
		text = truncate(text, width-1) // a line that wraps can't be redrawn
	}
	fmt.Fprintf(l.acq.err, "\r\x1b[K%s", text)
	l.drawn = true
}

// clear removes the line from the terminal.
func (l *waitLine) clear() {
	if l.drawn {
		fmt.Fprint(l.acq.err, "\r\x1b[K")
	}
}
