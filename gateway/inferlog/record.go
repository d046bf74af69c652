package inferlog

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// Record is one query of a function and its answer. The caller owns all of it again when [Stream.Add] returns.
type Record struct {
	// ID is the query's id, AtMicros its arrival (Unix time), and TookMicros how long its caller waited.
	ID         uint64
	AtMicros   int64
	TookMicros int64
	// Code is the result. Default means that the caller got the function's default output.
	Code    api.Code
	Default bool
	// Confidence is from 0 to 1, or NaN if there is none.
	Confidence float64
	// RequestID is the X-Request-Id of the request, Context the caller's context; they may be empty.
	RequestID, Context []byte
	// Models are the models whose answers counted, at most 64.
	Models []api.ModelID
	// Inputs and Outputs are in the order of the stream's specs. Outputs is empty if the query had no prediction.
	Inputs, Outputs []api.Value
}

// FeedbackKind is the kind of a [Feedback].
type FeedbackKind uint8

// Kinds of feedback, as in the gateway's API.
const (
	// FeedbackLabel: Label is the right answer.
	FeedbackLabel FeedbackKind = 1
	// FeedbackCorrect: the answer was right (Loss 0) or wrong (Loss 1).
	FeedbackCorrect FeedbackKind = 2
	// FeedbackLoss: Loss, from 0 to 1, is how wrong the answer was.
	FeedbackLoss FeedbackKind = 3
)

// Feedback is feedback on the answer to one query. The caller owns all of it again when [Stream.Feedback] returns.
type Feedback struct {
	// ID is the query's id, AtMicros the time of the feedback (Unix time).
	ID       uint64
	AtMicros int64
	Kind     FeedbackKind
	// Label is JSON, in the form of an answer's output.
	Label   []byte
	Loss    float64
	Context []byte
}

// Schema describes a function in a frame: the types of its queries.
type Schema struct {
	Function string
	// Sample is the fraction of the function's queries that was logged, from 0 to 1.
	Sample          float64
	Inputs, Outputs []api.TensorSpec
}

func (s *Schema) equal(o *Schema) bool {
	same := func(a, b api.TensorSpec) bool {
		return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
	}
	return s.Function == o.Function && s.Sample == o.Sample && slices.EqualFunc(s.Inputs, o.Inputs, same) && slices.EqualFunc(s.Outputs, o.Outputs, same)
}

// fixedEntry, fixedQuery and fixedFeedback are the fixed-size bytes of any entry, of a query and of feedback.
const (
	fixedEntry    = 4 + 1
	fixedQuery    = fixedEntry + 8 + 8 + 2 + 8
	fixedFeedback = fixedEntry + 8 + 8 + 1 + 8
)

// size returns the number of bytes that appendRecord appends, for reserving room.
func (r *Record) size(stream uint64) int {
	n := fixedQuery + uvarintSize(stream) + uvarintSize(uint64(max(r.TookMicros, 0))) + textSize(len(r.Context)) + uvarintSize(uint64(len(r.Models)))
	if len(r.RequestID) > 0 {
		n += textSize(len(r.RequestID))
	}
	for i := range r.Models {
		n += textSize(len(r.Models[i].Name)) + textSize(len(r.Models[i].Version))
	}
	return n + valuesSize(r.Inputs) + valuesSize(r.Outputs)
}

func valuesSize(values []api.Value) int {
	n := 0
	for i := range values {
		v := &values[i]
		n += uvarintSize(uint64(len(v.Dims))) + textSize(len(v.Data))
		for _, d := range v.Dims {
			n += uvarintSize(uint64(d))
		}
	}
	return n
}

// size returns the number of bytes that appendFeedback appends.
func (f *Feedback) size(stream uint64) int {
	return fixedFeedback + uvarintSize(stream) + textSize(len(f.Label)) + textSize(len(f.Context))
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func textSize(n int) int { return uvarintSize(uint64(n)) + n }

// appendSchema encodes a stream's schema as an entry.
func appendSchema(dst []byte, stream uint64, s *Schema) []byte {
	dst, at := beginEntry(dst, entrySchema, stream)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.Sample))
	dst = appendText(dst, s.Function)
	dst = appendSpecs(dst, s.Inputs)
	dst = appendSpecs(dst, s.Outputs)
	return endEntry(dst, at)
}

func appendSpecs(dst []byte, specs []api.TensorSpec) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(specs)))
	for i := range specs {
		dst = appendText(dst, specs[i].Name)
		dst = append(dst, byte(specs[i].DType))
		dst = binary.AppendUvarint(dst, uint64(len(specs[i].Shape)))
		for _, d := range specs[i].Shape {
			dst = binary.AppendVarint(dst, d)
		}
	}
	return dst
}

// appendRecord encodes a query as an entry.
func appendRecord(dst []byte, stream uint64, r *Record) []byte {
	dst, at := beginEntry(dst, entryQuery, stream)
	dst = binary.LittleEndian.AppendUint64(dst, r.ID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.AtMicros))
	dst = binary.AppendUvarint(dst, uint64(max(r.TookMicros, 0)))
	flags := byte(0)
	if r.Default {
		flags |= flagDefault
	}
	if len(r.Outputs) > 0 {
		flags |= flagOutputs
	}
	if len(r.RequestID) > 0 {
		flags |= flagRequestID
	}
	dst = append(dst, byte(r.Code), flags)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(r.Confidence))
	if len(r.RequestID) > 0 {
		dst = appendText(dst, r.RequestID)
	}
	dst = appendText(dst, r.Context)
	dst = binary.AppendUvarint(dst, uint64(len(r.Models)))
	for i := range r.Models {
		dst = appendText(dst, r.Models[i].Name)
		dst = appendText(dst, r.Models[i].Version)
	}
	dst = appendValues(dst, r.Inputs)
	dst = appendValues(dst, r.Outputs)
	return endEntry(dst, at)
}

func appendValues(dst []byte, values []api.Value) []byte {
	for i := range values {
		v := &values[i]
		dst = binary.AppendUvarint(dst, uint64(len(v.Dims)))
		for _, d := range v.Dims {
			dst = binary.AppendUvarint(dst, uint64(d))
		}
		dst = appendText(dst, v.Data)
	}
	return dst
}

// appendFeedback encodes feedback as an entry.
func appendFeedback(dst []byte, stream uint64, f *Feedback) []byte {
	dst, at := beginEntry(dst, entryFeedback, stream)
	dst = binary.LittleEndian.AppendUint64(dst, f.ID)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.AtMicros))
	dst = append(dst, byte(f.Kind))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(f.Loss))
	dst = appendText(dst, f.Label)
	dst = appendText(dst, f.Context)
	return endEntry(dst, at)
}

func beginEntry(dst []byte, kind byte, stream uint64) (out []byte, at int) {
	at = len(dst)
	dst = append(dst, 0, 0, 0, 0, kind)
	return binary.AppendUvarint(dst, stream), at
}

func endEntry(dst []byte, at int) []byte {
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}
