package timeline

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"time"
)

// A Drawing collects timelines with the same lanes, and writes them as an SVG, one below the
// other. A bar beside a lane says for how long its client believed that it held the lock. It is
// red while there is more than one.
type Drawing struct {
	lanes []string
	body  bytes.Buffer
	y     int
	holds []bool
	last  time.Duration // of the previous event
}

// Measures in pixels. The font has a fixed width, which is at most 0.61 of its size.
const (
	fontSize  = 12
	charWidth = fontSize * 61 / 100
	lineStep  = 16
	rowGap    = 4  // between two rows
	longGap   = 20 // between two rows with a second or more between them
	margin    = 20
	timeSpace = 70
	laneSpace = 268
	barWidth  = 5
	laneChars = (laneSpace - 24) / charWidth
)

// NewDrawing returns a drawing without a timeline. The last lane is the server's.
func NewDrawing(lanes []string) *Drawing {
	return &Drawing{lanes: lanes, holds: make([]bool, len(lanes)), y: margin}
}

func (d *Drawing) width() int { return 2*margin + timeSpace + laneSpace*len(d.lanes) }

func (d *Drawing) laneX(lane int) int { return margin + timeSpace + laneSpace*lane }

// Text adds a paragraph. The kind is "title", "broken", "right" or "".
func (d *Drawing) Text(kind, text string) {
	d.y += lineStep / 2
	for _, line := range wrap(text, (d.width()-2*margin)/(charWidth+1)) {
		d.y += lineStep
		d.write(margin, d.y, kind, line)
	}
}

// Begin begins a timeline in which nobody holds the lock.
func (d *Drawing) Begin() {
	clear(d.holds)
	d.last = 0
	d.y += 2 * lineStep
	for i, lane := range d.lanes {
		d.write(d.laneX(i)+12, d.y, "lane", lane)
	}
	d.y += rowGap
}

// Event adds an event.
func (d *Drawing) Event(e Event) {
	lane, server := slices.Index(d.lanes, e.Lane), len(d.lanes)-1
	if lane < 0 {
		return
	}
	gap := rowGap
	if e.At-d.last >= time.Second {
		gap = longGap
	}
	d.last = e.At
	d.bars(gap)

	setHolders(d.holds, d.lanes, e)
	top := d.y
	d.write(margin, top+lineStep, "time", seconds(e.At))
	height := d.cell(lane, top, e.Text)
	if e.Server != "" {
		if lane == server {
			top += height
		}
		height = max(height, top-d.y+d.cell(server, top, e.Server))
	}
	d.bars(height)
}

// cell writes text into a lane, and returns its height.
func (d *Drawing) cell(lane, top int, text string) int {
	lines := wrap(text, laneChars)
	for i, line := range lines {
		d.write(d.laneX(lane)+12, top+lineStep*(i+1), "", line)
	}
	return lineStep * len(lines)
}

// bars draws the bars of all who believe that they hold the lock, and moves down.
func (d *Drawing) bars(height int) {
	color := barColor(d.holds)
	for lane, holds := range d.holds {
		if holds {
			fmt.Fprintf(&d.body, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`+"\n", color, d.laneX(lane), d.y+rowGap, barWidth, height)
		}
	}
	d.y += height
}

func (d *Drawing) write(x, y int, kind, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(&d.body, `<text x="%d" y="%d"`, x, y)
	if kind != "" {
		fmt.Fprintf(&d.body, ` class="%s"`, kind)
	}
	d.body.WriteString(">")
	_ = xml.EscapeText(&d.body, []byte(text)) // a buffer takes everything
	d.body.WriteString("</text>\n")
}

const style = `text { font: 12px "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #222; white-space: pre }
.title { font-size: 16px; font-weight: bold }
.lane { font-weight: bold }
.time { fill: #777 }
.broken { fill: #b00020; font-weight: bold }
.right { fill: #1b7f3b; font-weight: bold }
rect.one { fill: #1b7f3b }
rect.many { fill: #b00020 }
`

// WriteTo writes the SVG.
func (d *Drawing) WriteTo(out io.Writer) (int64, error) {
	var all bytes.Buffer
	width, height := d.width(), d.y+margin
	fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`+"\n", width, height)
	fmt.Fprintf(&all, "<style>\n%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", style)
	all.Write(d.body.Bytes())
	all.WriteString("</svg>\n")
	return all.WriteTo(out)
}
