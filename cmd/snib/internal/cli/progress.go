package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

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
