package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/term"
)

// onTerminal reports whether standard error is a terminal.
func onTerminal() bool { return term.IsTerminal(int(syscall.Stderr)) } //nolint:unconvert // a handle on Windows

// canRedraw reports whether standard error is a terminal on which a line can be drawn again. An old
// console of Windows can't, and nothing tells which it is.
func canRedraw() bool {
	return onTerminal() && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"
}

// A statusLine is one line on a terminal that is drawn again and again.
type statusLine struct {
	out   io.Writer
	drawn bool
}

func (l *statusLine) draw(text string) {
	if width, _, err := term.GetSize(int(syscall.Stderr)); err == nil { //nolint:unconvert // as above
		text = truncate(text, width-1) // a line that wraps can't be redrawn
	}
	fmt.Fprintf(l.out, "\r\x1b[K%s", text)
	l.drawn = true
}

// clear removes the line from the terminal.
func (l *statusLine) clear() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}

// A progressLine is a statusLine for what takes long. It is disabled with --quiet, and without a
// terminal that can redraw.
type progressLine struct {
	statusLine
	nextDraw time.Time
	disabled bool
}

func (a *app) newProgressLine() *progressLine {
	return &progressLine{statusLine{out: a.err}, time.Now().Add(feedbackInterval), a.quiet || !canRedraw()}
}

// show draws the line, at most five times a second, and not at all in the first second.
func (p *progressLine) show(format string, args ...any) {
	if !p.disabled && !time.Now().Before(p.nextDraw) {
		p.nextDraw = time.Now().Add(feedbackInterval / 5)
		p.draw(fmt.Sprintf("snib: "+format, args...))
	}
}
