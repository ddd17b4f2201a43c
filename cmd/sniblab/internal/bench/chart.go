package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of a chart.
const (
	chartWidth   = 22 * vg.Centimeter
	chartColumns = 140 // characters of the notes that are as wide
	rowHeight    = 0.8 * vg.Centimeter
	barHeight    = 0.5 * vg.Centimeter
	headHeight   = 3 * vg.Centimeter   // of a panel, for its title, its axis, and the space below
	lineHeight   = 0.4 * vg.Centimeter // of the notes
	border       = 0.5 * vg.Centimeter
)

// The background is always white, so that charts are readable on dark pages. The colors differ for
// eyes that don't tell red from green.
var (
	oursColor  = color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff}
	otherColor = color.RGBA{R: 0xb4, G: 0xbe, B: 0xc8, A: 0xff}
	floorColor = color.RGBA{R: 0xd9, G: 0x5f, B: 0x02, A: 0xff}
)

// writeChart writes the tables of a scenario as one SVG picture, with a panel for each. A bar is
// the median of the first column, a whisker goes from the least to the most, and a line shows the
// floor. notes are lines below: the machine, the versions, the command.
func writeChart(w io.Writer, tables []*table, notes []string) error {
	var panels []*plot.Plot
	var heights []vg.Length
	for _, t := range tables {
		p, err := panel(t)
		if err != nil {
			return err
		}
		panels, heights = append(panels, p), append(heights, headHeight+rowHeight*vg.Length(len(t.peers)))
	}
	return writePanels(w, panels, heights, notes)
}

// writePanels writes plots below each other as one SVG picture, and notes below them.
func writePanels(w io.Writer, panels []*plot.Plot, heights []vg.Length, notes []string) error {
	height := 2*border + lineHeight*vg.Length(len(notes))
	for _, h := range heights {
		height += h
	}
	canvas := vgsvg.New(chartWidth, height)
	area := draw.New(canvas)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	area = draw.Crop(area, border, -border, border, -border)
	for i, p := range panels {
		p.Draw(draw.Crop(area, 0, 0, area.Max.Y-area.Min.Y-heights[i]+border, 0))
		area = draw.Crop(area, 0, 0, 0, -heights[i])
	}
	style := text.Style{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size, style.Font.Variant = 7, "Sans"
	for i, note := range notes {
		area.FillText(style, vg.Point{X: area.Min.X, Y: area.Max.Y - lineHeight*vg.Length(i+1)}, note)
	}
	_, err := canvas.WriteTo(w)
	return err
}

// newPlot returns an empty plot in a font without serifs.
func newPlot(title, axis string) *plot.Plot {
	p := plot.New()
	p.Title.TextStyle.Font.Variant, p.X.Label.TextStyle.Font.Variant = "Sans", "Sans"
	p.X.Tick.Label.Font.Variant, p.Y.Tick.Label.Font.Variant = "Sans", "Sans"
	p.Title.Text, p.X.Label.Text = title, axis
	return p
}

// panel draws one table. The best peer is at the top.
func panel(t *table) (*plot.Plot, error) {
	first, base := t.columns()[0], t.mainBase()
	axis := first.title
	if first.lowerIsBetter {
		axis += " (less is better)"
	}
	if base != "" {
		axis += ", with the ratio to " + base
	}
	p := newPlot(t.title(), axis)
	p.X.Min = 0
	p.X.Tick.Marker = figureTicks{}
	rows := new(rows)
	for _, peer := range slices.Backward(t.ranked()) {
		s := spreadOf(t.figures(peer.name, first.of))
		if math.IsNaN(s.median) { // it failed, or never did what the figure measures
			rows.add(peer.name, spread{}, "no figure")
			continue
		}
		label := s.String()
		if base != "" && peer.name != base {
			label += ", × " + spreadOf(t.ratios(peer.name, base, first.of)).String()
		}
		if err := addBar(p, peer, float64(len(rows.names)), s.median); err != nil {
			return nil, err
		}
		if peer.role == floor {
			if err := addLine(p, s.median, len(t.peers)); err != nil {
				return nil, err
			}
		}
		rows.add(peer.name, s, label)
		p.X.Max = max(p.X.Max, s.high*1.6) // room for the label
	}
	return p, rows.drawOn(p)
}

// rows are the rows of a plot, from the bottom to the top.
type rows struct {
	names  []string
	ends   errorBars
	labels plotter.XYLabels
}

// add adds a row with a whisker from the least to the most, and a label right of it.
func (r *rows) add(name string, s spread, label string) {
	at := float64(len(r.names))
	r.names = append(r.names, name)
	r.ends.XYs = append(r.ends.XYs, plotter.XY{X: s.median, Y: at})
	r.ends.XErrors = append(r.ends.XErrors, struct{ Low, High float64 }{s.median - s.low, s.high - s.median})
	r.labels.XYs, r.labels.Labels = append(r.labels.XYs, plotter.XY{X: s.high, Y: at}), append(r.labels.Labels, label)
}

func (r *rows) drawOn(p *plot.Plot) error {
	p.NominalY(r.names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(r.names))-0.4
	whiskers, err := plotter.NewXErrorBars(r.ends)
	if err != nil {
		return err
	}
	texts, err := plotter.NewLabels(r.labels)
	if err != nil {
		return err
	}
	texts.Offset.X = 1.5 * vg.Millimeter
	for i := range texts.TextStyle {
		style := &texts.TextStyle[i]
		style.Font.Size, style.Font.Variant, style.YAlign = 8, "Sans", text.YCenter
	}
	p.Add(whiskers, texts)
	return nil
}

type errorBars struct {
	plotter.XYs
	plotter.XErrors
}

func addBar(p *plot.Plot, peer peer, at, length float64) error {
	bar, err := plotter.NewBarChart(plotter.Values{length}, barHeight)
	if err != nil {
		return err
	}
	bar.Horizontal, bar.XMin, bar.LineStyle.Width, bar.Color = true, at, 0, otherColor
	if peer.role == ours {
		bar.Color = oursColor
	}
	p.Add(bar)
	return nil
}

// addLine adds a dashed line across all rows.
func addLine(p *plot.Plot, at float64, rows int) error {
	line, err := plotter.NewLine(plotter.XYs{{X: at, Y: -0.5}, {X: at, Y: float64(rows) - 0.5}})
	if err != nil {
		return err
	}
	line.Color, line.Dashes = floorColor, []vg.Length{3, 3}
	p.Add(line)
	return nil
}

// writeSummaryChart writes how many times better our rows are than those that they are compared
// with. The scale is logarithmic, and right of 1 is better.
func writeSummaryChart(w io.Writer, all []ratio, notes []string) error {
	p := newPlot("snib beside what it is compared with", "times better (1: as good; left of it: worse)")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{}
	p.X.Min, p.X.Max = 0.5, 2
	rows := new(rows)
	for _, r := range slices.Backward(all) {
		low, high := r.better()
		if math.IsNaN(low) || low <= 0 || math.IsInf(high, 0) {
			continue
		}
		s := spread{median: r.quotient.median, low: low, high: high}
		if r.table.columns()[0].lowerIsBetter {
			s.median = 1 / s.median
		}
		name := fmt.Sprintf("%s, %s: %s", r.table.scenario.name, r.table.variant.title(), r.ours)
		rows.add(name, s, fmt.Sprintf("%s × %s: %s", s, r.base, r.result()))
		p.X.Min, p.X.Max = min(p.X.Min, low/1.5), max(p.X.Max, high*1.5)
	}
	if len(rows.names) == 0 {
		return rows.drawNone(w, notes)
	}
	p.X.Max *= 30 // room for the labels
	points, err := plotter.NewScatter(rows.ends.XYs)
	if err != nil {
		return err
	}
	points.Color, points.Shape, points.Radius = oursColor, draw.CircleGlyph{}, 3
	p.Add(points)
	if err := addLine(p, 1, len(rows.names)); err != nil {
		return err
	}
	if err := rows.drawOn(p); err != nil {
		return err
	}
	return writePanels(w, []*plot.Plot{p}, []vg.Length{headHeight + 0.6*rowHeight*vg.Length(len(rows.names))}, notes)
}

// drawNone writes a picture without rows.
func (r *rows) drawNone(w io.Writer, notes []string) error {
	return writePanels(w, nil, nil, append([]string{"There is nothing to compare."}, notes...))
}

// figureTicks are the default ticks, with the figures written as in tables.
type figureTicks struct{ plot.DefaultTicks }

func (f figureTicks) Ticks(least, most float64) []plot.Tick {
	ticks := f.DefaultTicks.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strings.TrimSuffix(formatFigure(ticks[i].Value), ".00")
		}
	}
	return ticks
}
