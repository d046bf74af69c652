package drift

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

const (
	// maxElements bounds the features of a tensor, maxFeatures those of all inputs or all outputs.
	maxElements = 64
	maxFeatures = 256
	// maxMeanElements is the most elements of a tensor of open shape that are read for the mean: 1,024 take about a
	// microsecond.
	maxMeanElements = 1024
	// maxLabels and maxLabelBytes bound labels. Beyond them outputs are numbers or texts.
	maxLabels     = 64
	maxLabelBytes = 64
)

// measure is the property of a tensor that a feature measures.
type measure uint8

const (
	singleElement measure = iota // the element at offset, as a number
	elementCount
	elementMean
	byteLength   // the mean length of BYTES elements
	integerLabel // the element at offset, one of a few
	textLabel    // a BYTES of rank 0, one of a few
)

// feature is one measured property of a query, and its distribution at validation.
type feature struct {
	measure measure
	output  bool
	tensor  int // index among the inputs or outputs
	dtype   api.DType
	rank    int
	// elements is the number of a tensor's elements if its shape is fixed, else -1. offset is an element's position, in
	// bytes.
	elements int64
	offset   int
	name     string

	// edges divide numbers into bins: the bin of x is the number of edges ≤ x. One more bin holds what is not finite.
	edges []float64
	// integers or texts map labels to bins. One more bin holds all other values.
	integers map[int64]int
	texts    map[string]int
	labels   []string

	validated []uint32 // by bin
	mean      float64  // of the finite numbers
}

// features returns the features of some tensors.
func features(tensors []api.TensorSpec, output bool) []*feature {
	var all []*feature
	perTensor := max(1, min(maxElements, maxFeatures/max(1, len(tensors))))
	for i, t := range tensors {
		f := feature{output: output, tensor: i, dtype: t.DType, rank: len(t.Shape), elements: api.Elements(t.Shape), name: t.Name}
		add := func(m measure, name string) {
			f := f
			f.measure, f.name = m, name
			all = append(all, &f)
		}
		switch {
		case t.DType.Variable() && len(t.Shape) == 0:
			add(byteLength, t.Name+" (length)")
		case t.DType.Variable():
			if f.elements < 0 {
				add(elementCount, t.Name+" (elements)")
			}
			add(byteLength, t.Name+" (mean length)")
		case f.elements < 0:
			add(elementCount, t.Name+" (elements)")
			add(elementMean, t.Name+" (mean)")
		default:
			n := min(int64(perTensor), f.elements)
			for e := range n {
				index := e * f.elements / n
				f.offset = int(index) * t.DType.Size()
				add(singleElement, elementName(t, index))
			}
		}
	}
	return all
}

// elementName returns a name such as "x", "x[3]" or "x[0,3]".
func elementName(t api.TensorSpec, index int64) string {
	if len(t.Shape) == 0 {
		return t.Name
	}
	at := make([]string, len(t.Shape))
	for d, size := range slices.Backward(t.Shape) {
		at[d] = strconv.FormatInt(index%size, 10)
		index /= size
	}
	return t.Name + "[" + strings.Join(at, ",") + "]"
}

// value returns the feature's tensor in a query, or an empty value if it is missing.
func (f *feature) value(inputs, outputs []api.Value) (v api.Value) {
	all := inputs
	if f.output {
		all = outputs
	}
	if f.tensor < len(all) {
		v = all[f.tensor]
	}
	return v
}

// bin returns a query's bin and its number, which is NaN for labels.
func (f *feature) bin(v api.Value) (bin int, number float64) {
	other := len(f.validated) - 1
	switch f.measure {
	case integerLabel:
		if i, ok := f.integer(v); ok {
			if b, ok := f.integers[i]; ok {
				return b, math.NaN()
			}
		}
		return other, math.NaN()
	case textLabel:
		if b, ok := f.texts[string(v.Data)]; ok {
			return b, math.NaN()
		}
		return other, math.NaN()
	}
	x := f.number(v)
	if !finite(x) {
		return other, math.NaN()
	}
	return f.binOf(x), x
}

// binOf returns the number of edges ≤ x.
func (f *feature) binOf(x float64) int {
	low, high := 0, len(f.edges)
	for low < high {
		if middle := (low + high) / 2; f.edges[middle] <= x {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// number returns the feature as a number, or NaN if the data does not fit the tensor's declaration.
func (f *feature) number(v api.Value) float64 {
	if f.measure == singleElement {
		return element(f.dtype, v.Data, f.offset)
	}
	n := f.elements
	if n < 0 {
		if n = api.Elements(v.Dims); len(v.Dims) != f.rank {
			n = -1
		}
	}
	if n < 0 {
		return math.NaN()
	}
	switch f.measure {
	case elementCount:
		return float64(n)
	case elementMean:
		return f.average(v.Data, n)
	}
	switch { // byteLength: with a rank, each element is preceded by a length of four bytes
	case f.rank == 0:
		return float64(len(v.Data))
	case n == 0:
		return 0
	case int64(len(v.Data)) < 4*n:
		return math.NaN()
	}
	return float64(int64(len(v.Data))-4*n) / float64(n)
}

// average returns the mean of evenly spaced elements, or 0 if there are none.
func (f *feature) average(data []byte, n int64) float64 {
	size := int64(f.dtype.Size())
	if n*size != int64(len(data)) {
		return math.NaN()
	}
	if n == 0 {
		return 0
	}
	read := min(n, maxMeanElements)
	sum := 0.0
	for i := range read {
		sum += element(f.dtype, data, int(i*n/read*size))
	}
	return sum / float64(read)
}

// element reads the number at an offset.
func element(d api.DType, data []byte, offset int) float64 {
	size := d.Size()
	if size == 0 || offset < 0 || offset+size > len(data) {
		return math.NaN()
	}
	data = data[offset : offset+size]
	switch d {
	case api.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	case api.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(data))
	case api.Float16:
		return float64(api.Float16ToFloat32(binary.LittleEndian.Uint16(data)))
	case api.BFloat16:
		return float64(api.BFloat16ToFloat32(binary.LittleEndian.Uint16(data)))
	case api.Uint64:
		return float64(binary.LittleEndian.Uint64(data))
	}
	return float64(integerAt(d, data))
}

// integerAt reads an integer or boolean. It reads a uint64 as if it were signed, which distinguishes labels just as
// well.
func integerAt(d api.DType, data []byte) int64 {
	switch d {
	case api.Bool, api.Uint8:
		return int64(data[0])
	case api.Int8:
		return int64(int8(data[0]))
	case api.Uint16:
		return int64(binary.LittleEndian.Uint16(data))
	case api.Int16:
		return int64(int16(binary.LittleEndian.Uint16(data)))
	case api.Uint32:
		return int64(binary.LittleEndian.Uint32(data))
	case api.Int32:
		return int64(int32(binary.LittleEndian.Uint32(data)))
	}
	return int64(binary.LittleEndian.Uint64(data))
}

func (f *feature) integer(v api.Value) (int64, bool) {
	size := f.dtype.Size()
	if f.offset+size > len(v.Data) {
		return 0, false
	}
	return integerAt(f.dtype, v.Data[f.offset:]), true
}

// integerText formats an integer label.
func (f *feature) integerText(i int64) string {
	switch f.dtype {
	case api.Bool:
		return strconv.FormatBool(i != 0)
	case api.Uint64:
		return strconv.FormatUint(uint64(i), 10)
	}
	return strconv.FormatInt(i, 10)
}

// labelText formats a text label. It quotes text that has anything but printable characters.
func labelText(s string) string {
	if utf8.ValidString(s) && s != "" && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// summary describes a distribution: the mean of the numbers with the percentage that is not finite, or the most
// frequent label with its percentage.
func (f *feature) summary(bins []uint32, mean float64) string {
	total, most := uint64(0), 0
	for b, n := range bins {
		total += uint64(n)
		if n > bins[most] {
			most = b
		}
	}
	other := len(bins) - 1
	part := func(b int) string {
		return strconv.FormatFloat(100*float64(bins[b])/float64(max(1, total)), 'g', 3, 64) + "%"
	}
	if f.labels != nil {
		label := "others"
		if most < other {
			label = f.labels[most]
		}
		return fmt.Sprintf("%s (%s)", label, part(most))
	}
	switch number := strconv.FormatFloat(mean, 'g', 4, 64); {
	case uint64(bins[other]) == total:
		return "not finite"
	case bins[other] > 0:
		return fmt.Sprintf("%s (%s not finite)", number, part(other))
	default:
		return number
	}
}
