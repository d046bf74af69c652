package measured

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

const (
	// noteFormat is the encoding of a note. A program skips notes of another one.
	noteFormat = 1
	// maxNoteBytes bounds a note. One of eight drifted features with long labels has about 4 KiB.
	maxNoteBytes = 16 << 10 //xebec:limit measured performance of one version in the store
	// maxText bounds each text in a note.
	maxText = 512
	// maxSizes and maxFeatures bound its lists.
	maxSizes, maxFeatures = 32, 16
	// maxFuture is how far a time may be ahead of this machine's clock.
	maxFuture = 24 * time.Hour
)

// note is what is kept of one version on one kind of hardware. It is written as JSON.
type note struct {
	Format      int                `json:"format"`
	Model       string             `json:"model"`
	Fingerprint string             `json:"fingerprint"`
	Hardware    string             `json:"hardware"`
	Latency     *api.KnownProfile  `json:"latency,omitempty"`
	Judged      *judged            `json:"judged,omitempty"`
	Drift       *api.MeasuredDrift `json:"drift,omitempty"`
}

// judged is how many predictions had feedback, with the sum of their losses.
type judged struct {
	Labels float64   `json:"labels"`
	Losses float64   `json:"losses"`
	At     time.Time `json:"at"`
}

// empty reports whether nothing was measured.
func (n *note) empty() bool { return n.Latency == nil && n.Judged == nil && n.Drift == nil }

// at is the time of the newest figure.
func (n *note) at() (at time.Time) {
	if n.Latency != nil {
		at = n.Latency.At
	}
	if n.Judged != nil && n.Judged.At.After(at) {
		at = n.Judged.At
	}
	if n.Drift != nil && n.Drift.At.After(at) {
		at = n.Drift.At
	}
	return at
}

// encode is the note as it is stored. What makes it too long is left out: features of the drift first.
func (n note) encode() ([]byte, error) {
	n.Format = noteFormat
	if n.Drift != nil && len(n.Drift.Features) > maxFeatures {
		d := *n.Drift
		d.Features, n.Drift = d.Features[:maxFeatures], &d
	}
	data, err := json.Marshal(n)
	if err == nil && len(data) > maxNoteBytes && n.Drift != nil {
		d := *n.Drift
		d.Features, n.Drift = nil, &d
		data, err = json.Marshal(n)
	}
	if err == nil && len(data) > maxNoteBytes {
		err = fmt.Errorf("what was measured of %.200s takes %d bytes: expected at most %d", n.Model, len(data), maxNoteBytes)
	}
	return data, err
}

// errOtherFormat: another program wrote the note.
var errOtherFormat = errors.New("it has another format")

// decode reads a note, which any program may have written. Every figure in the result is possible.
func decode(data []byte, now time.Time) (n note, err error) {
	if len(data) > maxNoteBytes {
		return n, fmt.Errorf("it has %d bytes: expected at most %d", len(data), maxNoteBytes)
	}
	var format struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return n, err
	}
	if format.Format != noteFormat {
		return n, errOtherFormat
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return note{}, err
	}
	c := checker{now: now}
	c.text("model", n.Model)
	c.text("fingerprint", n.Fingerprint)
	c.text("hardware", n.Hardware)
	if l := n.Latency; l != nil {
		c.latency(l)
	}
	if j := n.Judged; j != nil {
		c.number("labels", j.Labels)
		c.number("losses", j.Losses)
		c.time("judged", j.At)
		if j.Labels <= 0 || j.Losses > j.Labels {
			c.fail("%g losses of %g labels", j.Losses, j.Labels)
		}
	}
	if d := n.Drift; d != nil {
		c.drift(d)
	}
	if c.err != nil {
		return note{}, c.err
	}
	return n, nil
}

// checker finds the first figure that cannot be.
type checker struct {
	now time.Time
	err error
}

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// largest is beyond all nanoseconds, batches and labels that a gateway can count.
const largest = 1e18

func (c *checker) number(name string, x float64) {
	if !(x >= 0 && x <= largest) || math.IsInf(x, 0) {
		c.fail("%s is %g: expected 0 to %g", name, x, float64(largest))
	}
}

func (c *checker) text(name, s string) {
	if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		c.fail("%s is no text of at most %d bytes: %.40q", name, maxText, s)
	}
}

func (c *checker) time(name string, t time.Time) {
	if t.IsZero() || t.After(c.now.Add(maxFuture)) {
		c.fail("%s is of %v", name, t)
	}
}

func (c *checker) latency(l *api.KnownProfile) {
	c.number("intercept_micros", l.InterceptMicros)
	c.number("slope_micros", l.SlopeMicros)
	c.number("p99_micros", float64(l.P99Micros))
	c.number("batches", float64(l.Batches))
	c.number("mean_batch", l.MeanBatch)
	c.time("latency", l.At)
	if l.InterceptMicros+l.SlopeMicros <= 0 || l.Batches == 0 {
		c.fail("a batch takes %g + %g µs, measured with %d batches", l.InterceptMicros, l.SlopeMicros, l.Batches)
	}
	if len(l.Sizes) > maxSizes {
		c.fail("%d sizes: expected at most %d", len(l.Sizes), maxSizes)
	}
	before := 0
	for _, s := range l.Sizes {
		c.number("mean_micros", s.MeanMicros)
		if s.From <= before || s.To < s.From {
			c.fail("sizes %d to %d behind %d", s.From, s.To, before)
		}
		before = s.To
	}
}

func (c *checker) drift(d *api.MeasuredDrift) {
	c.number("input", d.Input)
	c.number("output", d.Output)
	c.number("served", float64(d.Served))
	c.number("validated", float64(d.Validated))
	c.time("drift", d.At)
	if len(d.Features) > maxFeatures {
		c.fail("%d features: expected at most %d", len(d.Features), maxFeatures)
	}
	for _, f := range d.Features {
		c.number("psi", f.PSI)
		c.text("a feature", f.Name)
		c.text("validated", f.Validated)
		c.text("served", f.Served)
	}
}
