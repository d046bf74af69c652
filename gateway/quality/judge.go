package quality

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Answer is the result of evaluating one query with one version.
type Answer struct {
	// Code is api.OK if there are Outputs.
	Code    api.Code
	Outputs []api.Value
}

const (
	// maxExamples is how many lines a reason shows, maxShownBytes how many bytes of an output.
	maxExamples   = 3
	maxShownBytes = 120
)

// Judge compares the answers of a new version with what v expects: the labels of the cases, or the answers of the
// serving version. answers and serving are indexed like cases; a missing answer counts as failed. If serving is nil,
// there is no serving version to compare with, and the version passes if it answers anything. outputs are the specs of
// the new version's outputs. expect is what the status says it was compared with: "labels" or the serving version's
// "name@version".
//
// Judge sets the counts, Passed, Expect and Reason of the result. The caller sets the rest.
func Judge(v *api.ValidateSpec, outputs []api.TensorSpec, cases []Case, answers, serving []Answer, expect string) api.ValidationStatus {
	j := judge{v: v, outputs: outputs, s: api.ValidationStatus{Expect: expect}}
	withServing := v.Expect == api.ExpectServing
	if !withServing && expect == "" {
		j.s.Expect = api.ExpectLabels
	}
	for i := range cases {
		c := &cases[i]
		got := answerAt(answers, i)
		if got.Code != api.OK {
			j.s.Failed++
		}
		if !withServing {
			if c.Label != nil {
				j.compare(c, got, c.Label)
			}
		} else if other := answerAt(serving, i); other.Code == api.OK {
			j.compare(c, got, other.Outputs)
		}
	}
	j.s.Reason = j.reason(withServing, len(cases), serving == nil)
	j.s.Passed = j.s.Reason == ""
	return j.s
}

func answerAt(answers []Answer, i int) Answer {
	if i < len(answers) {
		return answers[i]
	}
	return Answer{Code: api.Cancelled}
}

type judge struct {
	v        *api.ValidateSpec
	outputs  []api.TensorSpec
	s        api.ValidationStatus
	examples []string
}

func (j *judge) compare(c *Case, got Answer, want []api.Value) {
	j.s.Queries++
	if got.Code == api.OK && EqualOutputs(j.outputs, got.Outputs, want, j.v.Tolerance) {
		j.s.Matched++
		return
	}
	if len(j.examples) == maxExamples {
		return
	}
	shown := "no answer (" + got.Code.String() + ")"
	if got.Code == api.OK {
		shown = show(j.outputs, got.Outputs)
	}
	j.examples = append(j.examples, fmt.Sprintf("%s:%d: expected %s, got %s", j.v.Queries, c.Line, show(j.outputs, want), shown))
}

// reason returns why the version does not pass, or "" if it does.
func (j *judge) reason(withServing bool, cases int, noServing bool) string {
	s := &j.s
	switch {
	case cases == 0:
		return fmt.Sprintf("%s: has no queries, so nothing was validated: add some, or remove validate", j.v.Queries)
	case s.Failed == cases:
		return j.withExamples(fmt.Sprintf("answered none of %d queries", cases))
	case withServing && noServing:
		return ""
	case withServing && s.Queries == 0:
		return fmt.Sprintf("%s, the version to compare with, answered none of %d queries: expect labels, or remove validate", s.Expect, cases)
	case withServing:
		fraction := float64(s.Queries-s.Matched) / float64(s.Queries)
		if !(fraction <= j.v.MaxDifference) {
			return j.withExamples(fmt.Sprintf("answered %d of %d queries differently from %s (%s), %d queries without an answer: expected at most max_difference %s",
				s.Queries-s.Matched, s.Queries, s.Expect, number(fraction), s.Failed, number(j.v.MaxDifference)))
		}
	case s.Queries == 0:
		return fmt.Sprintf("%s: none of its %d queries has a label: add labels, or expect the serving version's answers", j.v.Queries, cases)
	default:
		if fraction := float64(s.Matched) / float64(s.Queries); !(fraction >= j.v.MinAccuracy) {
			return j.withExamples(fmt.Sprintf("answered %d of %d queries as labelled (%s), %d queries without an answer: expected at least min_accuracy %s",
				s.Matched, s.Queries, number(fraction), s.Failed, number(j.v.MinAccuracy)))
		}
	}
	return ""
}

func (j *judge) withExamples(reason string) string {
	return strings.Join(append([]string{reason}, j.examples...), "; ")
}

// number formats f with as many digits as needed to distinguish it from a threshold.
func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// show formats outputs for a reason: text as text, everything else as in an answer.
func show(specs []api.TensorSpec, values []api.Value) string {
	if len(values) != len(specs) {
		return fmt.Sprintf("%d outputs", len(values))
	}
	var b []byte
	for i := range specs {
		if i > 0 {
			b = append(b, ", "...)
		}
		if len(specs) > 1 {
			b = append(b, specs[i].Name+": "...)
		}
		if data := values[i].Data; specs[i].DType.Variable() && len(specs[i].Shape) == 0 && utf8.Valid(data) {
			b = strconv.AppendQuote(b, string(data[:min(len(data), maxShownBytes)]))
		} else if len(data) > 64*maxShownBytes {
			b = fmt.Appendf(b, "%s of %d bytes", specs[i], len(data))
		} else {
			b = tensorjson.AppendValue(b, specs[i], values[i])
		}
	}
	if len(b) > maxShownBytes {
		return strings.ToValidUTF8(string(b[:maxShownBytes]), "") + "…"
	}
	return string(b)
}

// EqualOutputs reports whether two versions' outputs are the same: equal shapes, floating-point elements no further apart than
// tolerance·max(1, |b|), and everything else exactly equal. NaN equals NaN, and an infinity equals only itself.
func EqualOutputs(specs []api.TensorSpec, a, b []api.Value, tolerance float64) bool {
	if len(a) != len(specs) || len(b) != len(specs) {
		return false
	}
	for i := range specs {
		if !specs[i].Fixed() && !slices.Equal(a[i].Dims, b[i].Dims) {
			return false
		}
		if !sameData(specs[i].DType, a[i].Data, b[i].Data, tolerance) {
			return false
		}
	}
	return true
}

func sameData(d api.DType, a, b []byte, tolerance float64) bool {
	if bytes.Equal(a, b) {
		return true
	}
	size := d.Size()
	if len(a) != len(b) || size == 0 || len(a)%size != 0 {
		return false
	}
	var element func([]byte) float64
	switch d {
	case api.Float16:
		element = func(p []byte) float64 { return float64(api.Float16ToFloat32(binary.LittleEndian.Uint16(p))) }
	case api.BFloat16:
		element = func(p []byte) float64 { return float64(api.BFloat16ToFloat32(binary.LittleEndian.Uint16(p))) }
	case api.Float32:
		element = func(p []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(p))) }
	case api.Float64:
		element = func(p []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(p)) }
	default:
		return false
	}
	for at := 0; at < len(a); at += size {
		if !near(element(a[at:]), element(b[at:]), tolerance) {
			return false
		}
	}
	return true
}

func near(a, b, tolerance float64) bool {
	switch {
	case a == b, a != a && b != b:
		return true
	case math.IsInf(a, 0), math.IsInf(b, 0): // otherwise everything would be near an infinite b
		return false
	}
	diff := math.Abs(a - b)
	if math.IsInf(diff, 0) { // the difference overflows, but that of the halves does not
		return math.Abs(a/2-b/2) <= tolerance*math.Abs(b/2)
	}
	return diff <= tolerance*max(1, math.Abs(b))
}
