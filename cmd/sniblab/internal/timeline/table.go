package timeline

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A Writer writes events for people while they happen. After an error of its output it
// writes nothing; Err returns the error.
type Writer struct {
	out   io.Writer
	lanes []string
	width int // of the text of a lane, or 0 for one line after the other
	holds []bool
	begun bool // the heads of the columns are written
	err   error
}

// The columns of a table.
const (
	timeWidth  = 9 // "  1.234 s"
	minWidth   = 14
	maxWidth   = 40
	laneMargin = 4 // two spaces, the bar and another one
)

// NewWriter returns a writer of a table for a terminal with so many columns. The last lane is the
// server's. If the terminal is too narrow for a table, or columns is 0 because the output is no
// terminal, each event is a line of its own, which also says who believes to hold the lock.
func NewWriter(out io.Writer, lanes []string, columns int) *Writer {
	w := &Writer{out: out, lanes: lanes, holds: make([]bool, len(lanes))}
	if width := (columns-timeWidth)/len(lanes) - laneMargin; width >= minWidth {
		w.width = min(width, maxWidth)
	}
	return w
}

// Err returns the first error of the output.
func (w *Writer) Err() error { return w.err }

// Begin begins a timeline in which nobody holds the lock. It writes nothing before the first
// event.
func (w *Writer) Begin() {
	clear(w.holds)
	w.begun = false
}

// heads writes the heads of the columns.
func (w *Writer) heads() {
	if w.width == 0 {
		w.line(faint.Styled(fmt.Sprintf("%*s", timeWidth, "time")), faint.Styled("holds"), faint.Styled("who"),
			faint.Styled("what"))
		return
	}
	heads := make([]string, len(w.lanes))
	for i, lane := range w.lanes {
		heads[i] = bold.Styled(lane)
	}
	w.row(faint.Styled(fmt.Sprintf("%*s", timeWidth, "time")), heads)
}

// Event writes an event.
func (w *Writer) Event(e Event) {
	time := fmt.Sprintf("%*s", timeWidth, seconds(e.At))
	lane, server := slices.Index(w.lanes, e.Lane), len(w.lanes)-1
	if lane < 0 {
		return
	}
	if !w.begun {
		w.begun = true
		w.heads()
	}
	held := w.holds[lane]
	setHolders(w.holds, w.lanes, e)
	if w.holds[lane] && !held {
		e.Text = bold.Styled(e.Text)
	}
	if w.width == 0 {
		w.line(faint.Styled(time), w.holders(), e.Lane, e.Text)
		if e.Server != "" {
			w.line(faint.Styled(time), w.holders(), w.lanes[server], e.Server)
		}
		return
	}
	cells := make([]string, len(w.lanes))
	cells[server] = e.Server
	if lane == server && e.Server != "" {
		e.Text += "\n" + e.Server
	}
	cells[lane] = e.Text
	w.row(faint.Styled(time), cells)
}

// line writes a line that is not in a table.
func (w *Writer) line(time, holders, lane, text string) {
	clients, all := strings.Join(w.lanes[:len(w.lanes)-1], " "), 0
	for _, lane := range w.lanes {
		all = max(all, ansi.StringWidth(lane))
	}
	w.printf("%s  %s  %s  %s\n", time, pad(holders, max(len("holds"), ansi.StringWidth(clients))), pad(lane, all), spaced(text))
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

// row writes a row of the table, in as many lines as its longest cell needs.
func (w *Writer) row(time string, cells []string) {
	bar := green.Styled("┃")
	if barColor(w.holds) == many {
		bar = red.Styled("┃")
	}
	lines := make([][]string, len(cells))
	height := 1
	for i, text := range cells {
		lines[i] = wrap(text, w.width)
		height = max(height, len(lines[i]))
	}
	for n := range height {
		line := pad("", timeWidth)
		if n == 0 {
			line = time
		}
		for i := range cells {
			mark, text := " ", ""
			if w.holds[i] {
				mark = bar
			}
			if n < len(lines[i]) {
				text = lines[i][n]
			}
			line += "  " + mark + " " + pad(text, w.width)
		}
		w.printf("%s\n", strings.TrimRight(line, " "))
	}
}

// pad fills text with spaces up to width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

func (w *Writer) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format, args...)
	}
}

var (
	bold  = ansi.NewStyle().Bold()
	faint = ansi.NewStyle().Faint()
	green = ansi.NewStyle().ForegroundColor(ansi.Green)
	red   = ansi.NewStyle().ForegroundColor(ansi.Red).Bold()
)
