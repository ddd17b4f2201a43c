package timeline

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"time"
)

// A Chart shows what happened in several lanes, to scale: time goes from left to right.
type Chart struct {
	Title       string // for readers that don't see it
	Lanes       []string
	From, Until time.Duration
	Spans       []Span
	Marks       []Mark
}

// A Kind is the kind of a [Span] or a [Mark], and the class of its shape in the SVG.
type Kind string

// Kinds of spans. Later ones are drawn over earlier ones.
const (
	Waiting Kind = "waiting" // for the lock
	Belief  Kind = "one"     // the client believes that it holds the lock
	Stopped Kind = "stopped" // the process does not run
	Overlap Kind = "many"    // two believe so at once
	Fault   Kind = "fault"
)

// Kinds of marks.
const (
	Read      Kind = "read"
	Write     Kind = "write"
	LostWrite Kind = "lostwrite" // it overwrites another one
	Death     Kind = "death"
)

// A Span is something that lasts.
type Span struct {
	Lane        string
	From, Until time.Duration
	Kind        Kind
	Text        string
}

// A Mark is something that happens at a moment.
type Mark struct {
	Lane string
	At   time.Duration
	Kind Kind
	Text string
}

const (
	chartWidth = 860
	laneHeight = 58
	barHeight  = 16
	barTop     = 24 // of a bar, within its lane
)

const chartStyle = style + `rect.waiting { fill: #d5d9de }
rect.stopped { fill: #8a929b }
rect.fault { fill: #e8a13a }
line { stroke: #d5d9de }
circle.read { fill: white; stroke: #222 }
path.write { fill: #222 }
path.lostwrite { fill: #b00020 }
path.death { stroke: #222; stroke-width: 2; fill: none }
text.lostwrite { fill: #b00020 }
text.left { text-anchor: end }
`

// WriteTo writes the chart as an SVG.
func (c Chart) WriteTo(out io.Writer) (int64, error) {
	var b bytes.Buffer
	width, height := 2*margin+timeSpace+chartWidth, 2*margin+laneHeight*len(c.Lanes)+lineStep
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`+"\n<title>", width, height)
	_ = xml.EscapeText(&b, []byte(c.Title)) // a buffer takes everything
	fmt.Fprintf(&b, "</title>\n<style>\n%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", chartStyle)
	c.axis(&b)
	for i, lane := range c.Lanes {
		label(&b, margin, margin+i*laneHeight+barTop+barHeight-3, "lane", lane)
	}
	layers := []Kind{Waiting, Belief, Stopped, Overlap, Fault}
	spans := slices.Clone(c.Spans)
	slices.SortStableFunc(spans,
		func(s, o Span) int { return cmp.Compare(slices.Index(layers, s.Kind), slices.Index(layers, o.Kind)) })
	for _, s := range spans {
		c.span(&b, s)
	}
	for _, m := range c.Marks {
		c.mark(&b, m)
	}
	b.WriteString("</svg>\n")
	return b.WriteTo(out)
}

// x returns where a time is.
func (c Chart) x(at time.Duration) int {
	return margin + timeSpace + int(float64(chartWidth)*float64(at-c.From)/float64(max(1, c.Until-c.From)))
}

// top returns where a lane begins, or false if there is none.
func (c Chart) top(lane string) (int, bool) {
	i := slices.Index(c.Lanes, lane)
	return margin + i*laneHeight, i >= 0
}

// axis draws lines at round times, ten at most.
func (c Chart) axis(b *bytes.Buffer) {
	step := 10 * time.Millisecond
	for i := 0; (c.Until-c.From)/step > 10; i++ {
		if i%3 == 1 { // 10, 20, 50, 100 ms, and so on
			step = step * 5 / 2
		} else {
			step *= 2
		}
	}
	bottom := margin + laneHeight*len(c.Lanes)
	for at := c.From.Truncate(step); at <= c.Until; at += step {
		if at < c.From {
			continue
		}
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%[1]d" y2="%[3]d"/>`+"\n", c.x(at), margin, bottom)
		label(b, c.x(at)-18, bottom+lineStep, "time", fmt.Sprintf("%.2f s", at.Seconds()))
	}
}

// span draws the part of a span that lies in the chart.
func (c Chart) span(b *bytes.Buffer, s Span) {
	top, ok := c.top(s.Lane)
	s.From, s.Until = max(s.From, c.From), min(s.Until, c.Until)
	if !ok || s.From > s.Until {
		return
	}
	y, height := top+barTop, barHeight
	if s.Kind == Waiting {
		y, height = y+barHeight/2-1, 3
	}
	left := c.x(s.From)
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`+"\n", s.Kind, left, y, max(1, c.x(s.Until)-left), height)
	if s.Kind != Stopped {
		label(b, left, top+barTop-4, "", s.Text)
	} else if c.x(s.Until)-left > charWidth*(len(s.Text)+2) { // the label of the belief may be above the bar
		label(b, left+charWidth, y+height-4, "", s.Text)
	}
}

// mark draws a mark that lies in the chart.
func (c Chart) mark(b *bytes.Buffer, m Mark) {
	top, ok := c.top(m.Lane)
	if !ok || m.At < c.From || m.At > c.Until {
		return
	}
	x, y := c.x(m.At), top+barTop+barHeight/2
	switch m.Kind {
	case Read:
		fmt.Fprintf(b, `<circle class="read" cx="%d" cy="%d" r="4"/>`+"\n", x, y)
	case Death:
		fmt.Fprintf(b, `<path class="death" d="M%d %dl12 12m0 -12l-12 12"/>`+"\n", x-6, y-6)
	default:
		fmt.Fprintf(b, `<path class="%s" d="M%d %dl5 9h-10z"/>`+"\n", m.Kind, x, y-5)
	}
	class := string(m.Kind)
	if x > margin+timeSpace+chartWidth*3/4 {
		class += " left" // of the mark: there is no room on the other side
	}
	label(b, x-5, top+barTop+barHeight+13, class, m.Text)
}

// label writes text.
func label(b *bytes.Buffer, x, y int, class, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" class="%s">`, x, y, class)
	_ = xml.EscapeText(b, []byte(text))
	b.WriteString("</text>\n")
}
