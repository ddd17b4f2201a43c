package cli

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/child"
)

// A progress is one line on standard error that is drawn anew while something takes long. It is not drawn with --quiet, nor where no
// person watches, nor on a terminal that can't redraw.
type progress struct {
	*app
	next  time.Time
	drawn bool
	off   bool
}

func (a *app) progress() *progress {
	return &progress{app: a, next: time.Now().Add(patience), off: a.quiet || !onTerminal() || os.Getenv("TERM") == "dumb"}
}

// show draws the line, five times a second at most, and not at all in the first second.
func (p *progress) show(format string, args ...any) {
	if p.off || time.Now().Before(p.next) {
		return
	}
	p.next, p.drawn = time.Now().Add(patience/5), true
	text := fmt.Sprintf("snib: "+format, args...)
	if width := child.Width(syscall.Stderr); width > 1 {
		text = cut(text, width-1) // a line that wraps can't be drawn over
	}
	fmt.Fprintf(p.err, "\r\x1b[K%s", text)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}
