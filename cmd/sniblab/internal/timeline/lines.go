package timeline

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A Writer writes events for people while they happen, each on a line that also says who believes
// to hold the lock. After an error of its output it writes nothing; Err returns the error.
type Writer struct {
	out   io.Writer
	lanes []string
	holds []bool
	begun bool // the head is written
	err   error
}

// timeWidth is that of "  1.234 s".
const timeWidth = 9

// NewWriter returns a writer. The last lane is the server's.
func NewWriter(out io.Writer, lanes []string) *Writer {
	return &Writer{out: out, lanes: lanes, holds: make([]bool, len(lanes))}
}

// Err returns the first error of the output.
func (w *Writer) Err() error { return w.err }

// Begin begins a timeline in which nobody holds the lock. It writes nothing before the first
// event.
func (w *Writer) Begin() {
	clear(w.holds)
	w.begun = false
}

// Event writes an event.
func (w *Writer) Event(e Event) {
	lane, server := slices.Index(w.lanes, e.Lane), len(w.lanes)-1
	if lane < 0 {
		return
	}
	if !w.begun {
		w.begun = true
		time := fmt.Sprintf("%*s", timeWidth, "time")
		w.line(faint.Styled(time), faint.Styled("holds"), faint.Styled("who"), faint.Styled("what"))
	}
	held := w.holds[lane]
	setHolders(w.holds, w.lanes, e)
	if w.holds[lane] && !held {
		e.Text = bold.Styled(e.Text)
	}
	time := faint.Styled(fmt.Sprintf("%*s", timeWidth, seconds(e.At)))
	w.line(time, w.holders(), e.Lane, e.Text)
	if e.Server != "" {
		w.line(time, w.holders(), w.lanes[server], e.Server)
	}
}

func (w *Writer) line(time, holders, lane, text string) {
	clients, all := strings.Join(w.lanes[:len(w.lanes)-1], " "), 0
	for _, lane := range w.lanes {
		all = max(all, ansi.StringWidth(lane))
	}
	if w.err != nil {
		return
	}
	_, w.err = fmt.Fprintf(w.out, "%s  %s  %s  %s\n", time, pad(holders, max(len("holds"), ansi.StringWidth(clients))), pad(lane, all), spaced(text))
}

// holders names those who believe that they hold the lock, each in a place of its own.
func (w *Writer) holders() string {
	style := green
	if barColor(w.holds) == many {
		style = red
	}
	var all []string
	for i, lane := range w.lanes[:len(w.lanes)-1] {
		if w.holds[i] {
			all = append(all, style.Styled(lane))
		} else {
			all = append(all, pad("", ansi.StringWidth(lane)))
		}
	}
	return strings.Join(all, " ")
}

// pad fills text with spaces up to width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

var (
	bold  = ansi.NewStyle().Bold()
	faint = ansi.NewStyle().Faint()
	green = ansi.NewStyle().ForegroundColor(ansi.Green)
	red   = ansi.NewStyle().ForegroundColor(ansi.Red).Bold()
)
