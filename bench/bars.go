package main

import (
	"fmt"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// contended is the scenario that the bars are about, and contenders are those that are drawn, the first at the top.
const contended = "lock-one-64"

var contenders = []struct{ who, label string }{
	{"LOCK lockproxy epoll", "lockproxy"},
	{redislock, redislock},
	{redsyncLib, redsyncLib},
	{rueidislock, rueidislock},
}

// bars draws how many hand-overs a contended lock has in a second, and the longest wait of a client. false: they were
// not measured.
func (r *report) bars(path string) (drawn bool, err error) {
	res := r.result(contended)
	if res == nil {
		return false, nil
	}
	var panels []*plot.Plot
	for _, column := range []struct {
		key, title string
		unit       float64
	}{
		{"handovers", "hand-overs/s: more is better", 1000},
		{"max", "longest wait, ms: less is better", 1},
	} {
		values, labels, names := plotter.Values{}, plotter.XYLabels{}, []string{}
		for i := range contenders {
			c := contenders[len(contenders)-1-i]
			v := res.median(c.who, column.key) * column.unit
			if math.IsNaN(v) {
				return false, nil
			}
			values, names = append(values, v), append(names, c.label)
			labels.XYs = append(labels.XYs, plotter.XY{X: v, Y: float64(i)})
			labels.Labels = append(labels.Labels, fmt.Sprintf(" %.0f", v))
		}
		bar, err := plotter.NewBarChart(values, vg.Points(16))
		if err != nil {
			return false, err
		}
		bar.Horizontal, bar.Color, bar.LineStyle.Width = true, plotutil.Color(2), 0
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return false, err
		}
		for i := range text.TextStyle {
			text.TextStyle[i].YAlign = draw.YCenter
		}
		p := plot.New()
		p.Title.Text, p.Title.Padding = column.title, vg.Points(4)
		p.Add(bar, text)
		p.NominalY(names...)
		p.Y.Padding = vg.Points(20) // a viewer without this font has a wider one
		p.X.Min, p.X.Max = 0, 1.2*p.X.Max
		p.HideX()
		panels = append(panels, p)
	}
	canvas := vgsvg.New(22*vg.Centimeter, 5*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Centimeter, PadTop: vg.Points(4), PadLeft: vg.Points(8), PadRight: vg.Points(8)}
	for i, c := range plot.Align([][]*plot.Plot{panels}, tiles, draw.New(canvas))[0] {
		panels[i].Draw(c)
	}
	f, err := os.Create(path)
	if err != nil {
		return false, err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		return false, err
	}
	return true, f.Close()
}
