package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/child"
)

// A progressLine is one line on standard error that is redrawn while something takes long. It
// is disabled with --quiet, without a terminal, and on a terminal that can't redraw.
type progressLine struct {
	*app
	nextDraw time.Time
	drawn    bool
	disabled bool
}

func (a *app) newProgressLine() *progressLine {
	return &progressLine{app: a, nextDraw: time.Now().Add(feedbackInterval),
		disabled: a.quiet || !child.CanRedraw(os.Stderr)}
}

// show draws the line, at most five times a second, and not at all in the first second.
func (p *progressLine) show(format string, args ...any) {
	if p.disabled || time.Now().Before(p.nextDraw) {
		return
	}
	p.nextDraw, p.drawn = time.Now().Add(feedbackInterval/5), true
	text := fmt.Sprintf("snib: "+format, args...)
	if width := child.Width(os.Stderr); width > 1 {
		text = truncate(text, width-1) // a line that wraps can't be redrawn
	}
	fmt.Fprintf(p.err, "\r\x1b[K%s", text)
}

// clear removes the line from the terminal.
func (p *progressLine) clear() {
	if p.drawn {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}
