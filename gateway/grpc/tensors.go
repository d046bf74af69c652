package grpc

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/xebecpb"
)

func itoa(i int) string { return strconv.Itoa(i) }

// sizeOf is about how much memory tensors take.
func sizeOf(list []*pb.Tensor) int {
	n := 0
	for _, t := range list {
		n += len(t.GetData()) + 8*len(t.GetNumbers())
		for _, item := range t.GetItems() {
			n += 4 + len(item)
		}
	}
	return n
}

// readTensors copies one query's tensors to values, one for each spec.
func readTensors(values []api.Value, specs []api.TensorSpec, list []*pb.Tensor, where string) error {
	var seen [api.MaxTensors + 1]bool
	if len(list) > len(specs) {
		return api.Errorf(api.InvalidArgument, "%s: %d tensors: expected %d", where, len(list), len(specs))
	}
	for i, t := range list {
		at := -1
		for k := range specs {
			if t.GetName() == specs[k].Name || t.GetName() == "" && len(specs) == 1 {
				at = k
				break
			}
		}
		here := where + "[" + itoa(i) + "]"
		switch {
		case at < 0:
			return api.Errorf(api.InvalidArgument, "%s.name: there is no tensor %.63q: expected %s", here, t.GetName(), tensorNames(specs))
		case seen[at]:
			return api.Errorf(api.InvalidArgument, "%s.name: the tensor %q is there twice", here, specs[at].Name)
		}
		seen[at] = true
		if err := readTensor(&values[at], &specs[at], t, here); err != nil {
			return err
		}
	}
	for k := range specs {
		if !seen[k] {
			return api.Errorf(api.InvalidArgument, "%s: the tensor %q (%s) is missing", where, specs[k].Name, specs[k].String())
		}
	}
	return nil
}

func tensorNames(specs []api.TensorSpec) string {
	s := ""
	for i := range specs {
		if i > 0 {
			s += ", "
		}
		s += strconv.Quote(specs[i].Name)
	}
	return s
}

// readTensor copies one tensor.
func readTensor(v *api.Value, spec *api.TensorSpec, t *pb.Tensor, where string) error {
	v.Data, v.Dims = v.Data[:0], v.Dims[:0]
	if d := t.GetDtype(); d != "" && d != spec.DType.String() {
		return api.Errorf(api.InvalidArgument, "%s.dtype: %.63q: expected %s", where, d, spec.DType)
	}
	forms := 0
	for _, n := range [...]int{len(t.GetData()), len(t.GetItems()), len(t.GetNumbers())} {
		if n > 0 {
			forms++
		}
	}
	if forms > 1 {
		return api.Errorf(api.InvalidArgument, "%s: expected one of data, items and numbers, found several", where)
	}
	var elements int64
	var err error
	switch size := spec.DType.Size(); {
	case spec.DType.Variable():
		if len(t.GetData())+len(t.GetNumbers()) > 0 {
			return api.Errorf(api.InvalidArgument, "%s: expected items for %s", where, spec.DType)
		}
		elements = int64(len(t.GetItems()))
		err = readItems(v, spec, t.GetItems(), where)
	case len(t.GetItems()) > 0:
		return api.Errorf(api.InvalidArgument, "%s: items are for bytes and strings: expected data or numbers for %s", where, spec.DType)
	case len(t.GetNumbers()) > 0:
		elements = int64(len(t.GetNumbers()))
		err = readNumbers(v, spec.DType, t.GetNumbers(), where)
	default:
		if len(t.GetData())%size != 0 {
			return api.Errorf(api.InvalidArgument, "%s.data: %d bytes are not a number of elements of %s, each of %d bytes", where, len(t.GetData()), spec.DType, size)
		}
		elements = int64(len(t.GetData()) / size)
		v.Data = append(v.Data, t.GetData()...)
		if spec.DType == api.Bool {
			for i, b := range v.Data {
				if b > 1 {
					return api.Errorf(api.InvalidArgument, "%s.data: element %d is %d: expected 0 or 1 for bool", where, i, b)
				}
			}
		}
	}
	if err != nil {
		return err
	}
	return readShape(v, spec, t.GetShape(), elements, where)
}

// readShape checks the shape, or infers it.
func readShape(v *api.Value, spec *api.TensorSpec, given []int64, elements int64, where string) error {
	var memory [api.MaxRank]int64
	dims := append(memory[:0], spec.Shape...)
	if len(given) > 0 {
		if !api.FitsShape(spec.Shape, given) || api.Elements(given) < 0 {
			return api.Errorf(api.InvalidArgument, "%s.shape: %s: expected %s", where, api.ShapeString(given[:min(len(given), api.MaxRank)]), api.ShapeString(spec.Shape))
		}
		copy(dims, given)
	} else {
		known, open := int64(1), -1
		for i, d := range dims {
			switch {
			case d >= 0:
				known *= d
			case open >= 0:
				return api.Errorf(api.InvalidArgument, "%s.shape: expected a shape: the declared one, %s, has more than one -1", where, api.ShapeString(spec.Shape))
			default:
				open = i
			}
		}
		if open >= 0 {
			if known == 0 || elements%known != 0 {
				return api.Errorf(api.InvalidArgument, "%s: %d elements do not fit the shape %s", where, elements, api.ShapeString(spec.Shape))
			}
			dims[open] = elements / known
		}
	}
	if want := api.Elements(dims); elements != want {
		return api.Errorf(api.InvalidArgument, "%s: %d elements: expected %d for the shape %s", where, elements, want, api.ShapeString(dims))
	}
	if !spec.Fixed() {
		v.Dims = append(v.Dims, dims...)
	}
	return nil
}

func readItems(v *api.Value, spec *api.TensorSpec, items [][]byte, where string) error {
	for i, item := range items {
		if spec.DType == api.String && !utf8.Valid(item) {
			return api.Errorf(api.InvalidArgument, "%s.items[%d]: it is not valid UTF-8, which a string is", where, i)
		}
		if len(spec.Shape) > 0 {
			v.Data = binary.LittleEndian.AppendUint32(v.Data, uint32(len(item)))
		}
		v.Data = append(v.Data, item...)
	}
	return nil
}

// readNumbers converts numbers to a type that can represent each of them; floats are rounded to the nearest.
func readNumbers(v *api.Value, d api.DType, numbers []float64, where string) error {
	for i, f := range numbers {
		ok := true
		switch d {
		case api.Float64:
			v.Data = binary.LittleEndian.AppendUint64(v.Data, math.Float64bits(f))
		case api.Float32:
			v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(float32(f)))
			ok = !math.IsInf(float64(float32(f)), 0) || math.IsInf(f, 0)
		case api.Float16:
			v.Data = binary.LittleEndian.AppendUint16(v.Data, api.Float64ToFloat16(f))
		case api.BFloat16:
			v.Data = binary.LittleEndian.AppendUint16(v.Data, api.Float64ToBFloat16(f))
		default:
			v.Data, ok = appendInteger(v.Data, d, f)
		}
		if !ok {
			return api.Errorf(api.InvalidArgument, "%s.numbers[%d]: %v does not fit %s", where, i, f, d)
		}
	}
	return nil
}

// appendInteger appends a number that must be an integer of the type, or 0 or 1 for bool.
func appendInteger(dst []byte, d api.DType, f float64) ([]byte, bool) {
	size := d.Size()
	low, high := 0.0, math.Ldexp(1, 8*size)
	switch d {
	case api.Bool:
		high = 2
	case api.Int8, api.Int16, api.Int32, api.Int64:
		low, high = -math.Ldexp(1, 8*size-1), math.Ldexp(1, 8*size-1)
	}
	if f != math.Trunc(f) || !(f >= low && f < high) {
		return dst, false
	}
	x := uint64(int64(f))
	if d == api.Uint64 && f >= 1<<63 {
		x = uint64(f)
	}
	switch size {
	case 1:
		return append(dst, byte(x)), true
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(x)), true
	case 4:
		return binary.LittleEndian.AppendUint32(dst, uint32(x)), true
	}
	return binary.LittleEndian.AppendUint64(dst, x), true
}

// tensorsOf copies one query's values.
func tensorsOf(specs []api.TensorSpec, values []api.Value) []*pb.Tensor {
	list := make([]*pb.Tensor, len(specs))
	for i := range specs {
		spec, v := &specs[i], &values[i]
		t := &pb.Tensor{Name: spec.Name, Dtype: spec.DType.String(), Shape: append([]int64(nil), spec.Shape...)}
		if !spec.Fixed() {
			t.Shape = append(t.Shape[:0], v.Dims...)
		}
		switch data := append([]byte(nil), v.Data...); {
		case !spec.DType.Variable():
			t.Data = data
		case len(spec.Shape) == 0:
			t.Items = [][]byte{data}
		default:
			for len(data) >= 4 {
				n := binary.LittleEndian.Uint32(data)
				if uint64(n) > uint64(len(data)-4) {
					break // the transport has judged the outputs
				}
				t.Items = append(t.Items, data[4:4+n:4+n])
				data = data[4+n:]
			}
		}
		list[i] = t
	}
	return list
}
