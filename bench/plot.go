package main

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw makes a plot of the latencies by percentile, in the form that shows the rare slow ones: each unit to the right
// is ten times fewer of them. false: there was nothing to draw.
func (r *result) draw(path string) (bool, error) {
	p := plot.New()
	p.Title.Text = r.title
	p.X.Label.Text = "percentile"
	p.Y.Label.Text = r.plot + ", ms"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: 2}
	p.X.Tick.Marker = percentiles()
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	p.Add(plotter.NewGrid())

	drawn := false
	for i, who := range r.contestants {
		h := r.mergedHist(who)
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		// Beyond the last percentile that ten values stand behind, a line would be drawn by chance.
		last := min(4, math.Log10(float64(h.TotalCount())/10))
		var points plotter.XYs
		for x := 0.0; x <= max(last, 1); x += 0.02 {
			v := float64(h.ValueAtQuantile(100*(1-math.Pow(10, -x)))) / float64(time.Millisecond)
			points = append(points, plotter.XY{X: x, Y: max(v, 0.001)})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return false, fmt.Errorf("%s: %w", who, err)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.5)
		line.Dashes = plotutil.Dashes(i / 5)
		p.Add(line)
		p.Legend.Add(who, line)
		drawn = true
	}
	if !drawn {
		return false, nil
	}
	return true, p.Save(22*vg.Centimeter, 12*vg.Centimeter, path)
}

func percentiles() plot.ConstantTicks {
	return plot.ConstantTicks{
		{Value: 0, Label: "0"},
		{Value: math.Log10(2), Label: "50"},
		{Value: 1, Label: "90"},
		{Value: 2, Label: "99"},
		{Value: 3, Label: "99.9"},
		{Value: 4, Label: "99.99"},
	}
}
