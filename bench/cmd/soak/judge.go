package main

import (
	"math"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// blocks is how many blocks of a curve are averaged before a line is fitted. Neighbouring samples depend on each other; the means of
// long blocks hardly do, and the interval of their slope can be believed.
const blocks = 10

// student975 is the 97.5 % quantile of Student's distribution with blocks-2 degrees of freedom.
const student975 = 2.306

// Trend is a line through a curve, by least squares over the means of blocks, without the first tenth (the warm-up).
type Trend struct {
	Mean float64 `json:"mean"`
	// Growth over the whole curve, as a part of the mean, with its 95 % interval. All are 0 if the curve is too short to be judged.
	Growth float64 `json:"growth"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// negligible is a growth that is not worth a second look: the end of the warm-up.
const negligible = 0.02

// Grows reports whether the curve grew: by more than is negligible, even at the lower end of the interval.
func (t Trend) Grows() bool { return t.Low > negligible }

// trend fits the line. A curve with fewer than two samples a block is not judged.
func trend(curve []float64) Trend {
	curve = curve[len(curve)/10:]
	size := len(curve) / blocks
	t := Trend{Mean: results.Mean(curve)}
	if size < 2 || t.Mean == 0 {
		return t
	}
	var y [blocks]float64
	for i := range y {
		y[i] = results.Mean(curve[i*size : (i+1)*size])
	}
	slope, deviation := fit(y[:])
	t.Growth = slope * blocks / t.Mean
	t.Low = (slope - student975*deviation) * blocks / t.Mean
	t.High = (slope + student975*deviation) * blocks / t.Mean
	return t
}

// fit returns the slope of the least-squares line through the points (0, y₀), (1, y₁), …, and its standard error.
func fit(y []float64) (slope, deviation float64) {
	n := float64(len(y))
	middle, mean := (n-1)/2, results.Mean(y)
	var xx, xy float64
	for i, v := range y {
		dx := float64(i) - middle
		xx += dx * dx
		xy += dx * (v - mean)
	}
	slope = xy / xx
	var rest float64
	for i, v := range y {
		d := v - mean - slope*(float64(i)-middle)
		rest += d * d
	}
	return slope, math.Sqrt(rest / (n - 2) / xx)
}
