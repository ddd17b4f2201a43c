package main

import (
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
	chartWidth = 20 * vg.Centimeter
	rowHeight  = 0.8 * vg.Centimeter
	barHeight  = 0.5 * vg.Centimeter
	headHeight = 3 * vg.Centimeter   // of a panel, for its title, its axis, and the space below
	lineHeight = 0.4 * vg.Centimeter // of the notes
	border     = 0.5 * vg.Centimeter
)

var (
	oursColor  = color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff}
	otherColor = color.RGBA{R: 0xb4, G: 0xbe, B: 0xc8, A: 0xff}
	floorColor = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
)

// writeChart writes the tables of a scenario as one SVG picture, with a panel for each. A bar is
// the median of the first column, a whisker goes from the least to the most, and a line shows the
// floor. notes are lines below: the machine, the versions, the command.
func writeChart(w io.Writer, tables []*table, notes []string) error {
	height := 2*border + lineHeight*vg.Length(len(notes))
	for _, t := range tables {
		height += panelHeight(t)
	}
	canvas := vgsvg.New(chartWidth, height)
	area := draw.New(canvas)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	area = draw.Crop(area, border, -border, border, -border)
	for _, t := range tables {
		p, err := panel(t)
		if err != nil {
			return err
		}
		p.Draw(draw.Crop(area, 0, 0, area.Max.Y-area.Min.Y-panelHeight(t)+border, 0))
		area = draw.Crop(area, 0, 0, 0, -panelHeight(t))
	}
	style := text.Style{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size, style.Font.Variant = 7, "Sans"
	for i, note := range notes {
		area.FillText(style, vg.Point{X: area.Min.X, Y: area.Max.Y - lineHeight*vg.Length(i+1)}, note)
	}
	_, err := canvas.WriteTo(w)
	return err
}

func panelHeight(t *table) vg.Length { return headHeight + rowHeight*vg.Length(len(t.peers)) }

// panel draws one table. The best peer is at the top.
func panel(t *table) (*plot.Plot, error) {
	first := t.scenario.columns[0]
	p := plot.New()
	p.Title.TextStyle.Font.Variant, p.X.Label.TextStyle.Font.Variant = "Sans", "Sans"
	p.X.Tick.Label.Font.Variant, p.Y.Tick.Label.Font.Variant = "Sans", "Sans"
	p.Title.Text = t.title()
	p.X.Label.Text = first.title
	if t.scenario.lowerIsBetter {
		p.X.Label.Text += " (less is better)"
	}
	p.X.Min = 0
	p.X.Tick.Marker = figureTicks{}
	var names []string
	var ends errorBars
	var labels plotter.XYLabels
	for _, peer := range slices.Backward(t.ranked()) {
		at := float64(len(names))
		s := spreadOf(t.figures(peer.name, first.of))
		names = append(names, peer.name)
		if math.IsNaN(s.median) { // all its runs failed
			labels.XYs, labels.Labels = append(labels.XYs, plotter.XY{X: 0, Y: at}), append(labels.Labels, "failed")
			continue
		}
		if err := addBar(p, peer, at, s.median); err != nil {
			return nil, err
		}
		ends.XYs = append(ends.XYs, plotter.XY{X: s.median, Y: at})
		ends.XErrors = append(ends.XErrors, struct{ Low, High float64 }{s.median - s.low, s.high - s.median})
		labels.XYs, labels.Labels = append(labels.XYs, plotter.XY{X: s.high, Y: at}), append(labels.Labels, s.String())
		p.X.Max = max(p.X.Max, s.high*1.25) // room for the label
		if peer.role == floor {
			line, err := plotter.NewLine(plotter.XYs{{X: s.median, Y: -0.5}, {X: s.median, Y: float64(len(t.peers)) - 0.5}})
			if err != nil {
				return nil, err
			}
			line.Color, line.Dashes = floorColor, []vg.Length{3, 3}
			p.Add(line)
		}
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	if len(ends.XYs) > 0 {
		whiskers, err := plotter.NewXErrorBars(ends)
		if err != nil {
			return nil, err
		}
		p.Add(whiskers)
	}
	texts, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	texts.Offset.X = vg.Millimeter
	for i := range texts.TextStyle {
		style := &texts.TextStyle[i]
		style.Font.Size, style.Font.Variant, style.YAlign = 8, "Sans", text.YCenter
	}
	p.Add(texts)
	return p, nil
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
