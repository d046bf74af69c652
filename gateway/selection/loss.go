package selection

import "math"

// LossKind says how a prediction's loss is computed from the label.
type LossKind uint8

const (
	// ZeroOne is 0 for a prediction that equals the label, 1 for any other.
	ZeroOne LossKind = iota
	// Absolute is |prediction − label| / scale, at most 1.
	Absolute
	// Squared is ((prediction − label) / scale)², at most 1.
	Squared
)

// lossNames are the names of the kinds as declarations write them.
var lossNames = [...]string{"zero-one", "absolute", "squared"}

func (k LossKind) String() string { return lossNames[k] }

// LossKindOf returns the kind with that name.
func LossKindOf(name string) (LossKind, bool) {
	for k, n := range lossNames {
		if n == name {
			return LossKind(k), true
		}
	}
	return 0, false
}

// Loss turns a prediction and its label into the number from 0 to 1 that policies expect.
type Loss struct {
	Kind LossKind
	// Scale is the error that counts as entirely wrong, for Absolute and Squared. A value that is not above 0 means 1.
	Scale float64
	// Tolerance is the largest error that ZeroOne accepts as right.
	Tolerance float64
}

// Of returns the loss of a prediction. For several elements it is the mean of their losses, except that ZeroOne judges
// them together. An element that is not a number is entirely wrong, and so is a prediction whose length differs from
// the label's.
func (l Loss) Of(prediction, label []float64) float64 {
	if len(prediction) != len(label) {
		return 1
	}
	if l.Kind == ZeroOne {
		for e, v := range prediction {
			if v != label[e] && !(math.Abs(v-label[e]) <= l.Tolerance) {
				return 1
			}
		}
		return 0
	}
	if len(label) == 0 {
		return 0
	}
	scale := l.Scale
	if !(scale > 0) {
		scale = 1
	}
	sum := 0.0
	for e, v := range prediction {
		miss := math.Abs(v-label[e]) / scale
		if v == label[e] {
			miss = 0 // also if both are infinite
		}
		if l.Kind == Squared {
			miss *= miss
		}
		if !(miss < 1) {
			miss = 1
		}
		sum += miss
	}
	return sum / float64(len(label))
}
