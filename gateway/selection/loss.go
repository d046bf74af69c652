package selection

import "math"

// LossKind says how the loss of a prediction is had from the label.
type LossKind uint8

const (
	// ZeroOne is 0 for a prediction that is the label, 1 for any other.
	ZeroOne LossKind = iota
	// Absolute is |prediction − label| / scale, at most 1.
	Absolute
	// Squared is ((prediction − label) / scale)², at most 1.
	Squared
)

var lossNames = [...]string{"zero-one", "absolute", "squared"}

func (k LossKind) String() string { return lossNames[k] }

// LossNames are the kinds of loss as a declaration names them, by LossKind.
func LossNames() []string { return append([]string(nil), lossNames[:]...) }

// LossKindOf is the kind with that name.
func LossKindOf(name string) (LossKind, bool) {
	for k, n := range lossNames {
		if n == name {
			return LossKind(k), true
		}
	}
	return 0, false
}

// Loss turns a prediction and its label into a number from 0 to 1, as the policies take it.
type Loss struct {
	Kind LossKind
	// Scale is the error that counts as wholly wrong, for Absolute and Squared; anything that is not above 0 means 1.
	Scale float64
	// Tolerance is the error that counts as none, for ZeroOne.
	Tolerance float64
}

// Of is the loss of a prediction: for several elements the mean of theirs, except that ZeroOne judges all of them as one. What is
// not a number, or has another length than the label, is wholly wrong.
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
			miss = 0 // also where both are infinite
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
