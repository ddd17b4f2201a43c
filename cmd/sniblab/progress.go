package main

import (
	"fmt"
	"os"
	"time"
)

// A progressLine is one line on a terminal that is redrawn while something takes long. It draws
// nothing if file is no terminal.
type progressLine struct {
	file     *os.File
	width    int
	nextDraw time.Time
	drawn    bool
}

func newProgressLine(file *os.File) *progressLine {
	p := &progressLine{file: file, nextDraw: time.Now().Add(time.Second)}
	if os.Getenv("TERM") != "dumb" {
		p.width = terminalWidth(file)
	}
	return p
}

// show draws the line, at most five times a second, and not at all in the first second.
func (p *progressLine) show(format string, args ...any) {
	if p.width < 2 || time.Now().Before(p.nextDraw) {
		return
	}
	p.nextDraw, p.drawn = time.Now().Add(time.Second/5), true
	text := []rune(fmt.Sprintf("sniblab: "+format, args...))
	fmt.Fprintf(p.file, "\r\x1b[K%s", string(text[:min(len(text), p.width-1)])) // a line that wraps can't be redrawn
}

// clear removes the line from the terminal.
func (p *progressLine) clear() {
	if p.drawn {
		fmt.Fprint(p.file, "\r\x1b[K")
	}
}
