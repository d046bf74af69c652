package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

const (
	extentBytes = 16 // an entry of a section table or an entry table: u64 offset, u64 length
	itemAlign   = 8  // the offset of every item of a ragged section is a multiple of it
)

// ErrBlock is wrapped by every error of a block: a value or a table that contradicts the schema.
var ErrBlock = errors.New("block does not fit its signature")

// Values is a batch as Schema.Size and Schema.Write read it. At returns column s of query i. Columns are the sections
// of the schema, in order: the tensors, then contexts, labels or confidences if the schema has them.
type Values interface {
	Len() int
	At(i, s int) *api.Value
}

// Schema is the list of a block's sections. It is immutable and may be shared.
//
// Inputs, outputs, contexts, labels and confidences are all sections. The caller lists them in the protocol's order.
// Contexts and labels are [BytesSection], confidences [ConfidenceSection].
type Schema struct {
	sections   []section
	tableBytes uint64 // the section table, padded
	ragged     bool
	err        error // why no block can have these sections
}

type section struct {
	spec api.TensorSpec
	// item is the number of bytes of one query's data in a fixed section.
	fixed bool
	item  uint64
	// entry is the number of bytes per query in the tables of a ragged section.
	entry uint64
	elem  uint64 // bytes of an element, 0 for BYTES
}

// BytesSection is the spec of contexts, of labels and of the texts of statuses, ConfidenceSection that of confidences, StatusSection that
// of [ItemStatus].
var (
	BytesSection      = api.TensorSpec{DType: api.Bytes}
	ConfidenceSection = api.TensorSpec{DType: api.Float64}
	StatusSection     = api.TensorSpec{DType: api.Uint16}
)

// NewSchema returns the schema of these sections, in this order. If [CheckSignature] refuses the specs, every method of
// the schema fails.
func NewSchema(specs []api.TensorSpec) *Schema {
	sc := &Schema{tableBytes: alignUp(uint64(len(specs))*extentBytes, BlockAlign)}
	for i := range specs {
		if err := checkTensor(&specs[i]); err != nil && sc.err == nil {
			sc.err = fmt.Errorf("%w: section %d: %w", ErrBlock, i, err)
		}
		sec := section{spec: specs[i], fixed: specs[i].Fixed(), elem: uint64(specs[i].DType.Size())}
		sec.spec.Shape = slices.Clone(specs[i].Shape)
		if sec.fixed {
			if sc.err == nil {
				sec.item = uint64(specs[i].ItemBytes())
			}
		} else {
			sec.entry = extentBytes + 8*uint64(len(specs[i].Shape))
			sc.ragged = true
		}
		sc.sections = append(sc.sections, sec)
	}
	return sc
}

// Sections is the number of sections.
func (sc *Schema) Sections() int { return len(sc.sections) }

// FixedSize is the size of a block of count queries if every section is fixed; math.MaxUint64 if that overflows.
func (sc *Schema) FixedSize(count int) (uint64, bool) {
	if sc.ragged || sc.err != nil || count < 0 {
		return 0, false
	}
	pos := sc.tableBytes
	for s := range sc.sections {
		pos = addSat(alignUp(pos, BlockAlign), mulSat(uint64(count), sc.sections[s].item))
	}
	return pos, true
}

// Size is the number of bytes that Write needs for v; math.MaxUint64 if that overflows, or if no block can have these
// sections.
func (sc *Schema) Size(v Values) uint64 {
	if sc.err != nil {
		return math.MaxUint64
	}
	count := v.Len()
	pos := sc.tableBytes
	for s := range sc.sections {
		sec := &sc.sections[s]
		pos = alignUp(pos, BlockAlign)
		if sec.fixed {
			pos = addSat(pos, mulSat(uint64(count), sec.item))
			continue
		}
		pos = addSat(pos, mulSat(uint64(count), sec.entry))
		for i := range count {
			pos = addSat(alignUp(pos, itemAlign), uint64(len(v.At(i, s).Data)))
		}
	}
	return pos
}

// Write lays out v in dst and returns the number of bytes, which is Size(v). No earlier content of dst remains visible.
// Write fails if dst is too short or a value contradicts its spec; the content of dst is then undefined.
func (sc *Schema) Write(dst []byte, v Values) (uint64, error) {
	if sc.err != nil {
		return 0, sc.err
	}
	if uint64(len(dst)) < sc.tableBytes {
		return 0, errNoRoom(len(dst))
	}
	clear(dst[:sc.tableBytes])
	pos := sc.tableBytes
	for s := range sc.sections {
		start := alignUp(pos, BlockAlign)
		if start > uint64(len(dst)) {
			return 0, errNoRoom(len(dst))
		}
		clear(dst[pos:start])
		n, err := sc.sections[s].write(dst[start:], v, s)
		if err != nil {
			return 0, err
		}
		putExtent(dst[s*extentBytes:], start, n)
		pos = start + n
	}
	return pos, nil
}

func (sec *section) write(dst []byte, v Values, s int) (uint64, error) {
	if !sec.fixed {
		return sec.writeRagged(dst, v, s)
	}
	count, item := v.Len(), int(sec.item)
	n := mulSat(uint64(count), sec.item)
	if n > uint64(len(dst)) {
		return 0, errNoRoom(len(dst))
	}
	for i := range count {
		data := v.At(i, s).Data
		if len(data) != item {
			return 0, fmt.Errorf("%w: %s of query %d has %d bytes, expected %d for %v", ErrBlock, sec.name(s), i, len(data), item, sec.spec)
		}
		dst = dst[copy(dst, data):]
	}
	return n, nil
}

func (sec *section) writeRagged(dst []byte, v Values, s int) (uint64, error) {
	count, rank := v.Len(), len(sec.spec.Shape)
	pos := mulSat(uint64(count), sec.entry)
	if pos > uint64(len(dst)) {
		return 0, errNoRoom(len(dst))
	}
	entries, dims := dst, dst[count*extentBytes:pos]
	for i := range count {
		value := v.At(i, s)
		if err := sec.check(value.Data, value.Dims); err != nil {
			return 0, fmt.Errorf("%w: %s of query %d: %w", ErrBlock, sec.name(s), i, err)
		}
		start := alignUp(pos, itemAlign)
		if start > uint64(len(dst)) || uint64(len(value.Data)) > uint64(len(dst))-start {
			return 0, errNoRoom(len(dst))
		}
		clear(dst[pos:start])
		putExtent(entries[i*extentBytes:], start, uint64(len(value.Data)))
		putDims(dims[8*rank*i:], value.Dims)
		pos = start + uint64(copy(dst[start:], value.Data))
	}
	return pos, nil
}

// check checks one item of a ragged section, including its elements.
func (sec *section) check(data []byte, dims []int64) error {
	if err := sec.checkDims(uint64(len(data)), dims); err != nil {
		return err
	}
	if sec.spec.DType.Variable() && len(dims) > 0 {
		return checkElements(data, api.Elements(dims))
	}
	return nil
}

// checkDims checks what can be checked of an item of a ragged section without reading it.
func (sec *section) checkDims(length uint64, dims []int64) error {
	if length > api.MaxItemBytes {
		return fmt.Errorf("%d bytes, expected at most %d", length, api.MaxItemBytes)
	}
	if len(dims) == 0 && len(sec.spec.Shape) == 0 {
		return nil // the data are the bytes themselves
	}
	if !api.FitsShape(sec.spec.Shape, dims) {
		return fmt.Errorf("shape %s, expected %v", api.ShapeString(dims), sec.spec)
	}
	elements := api.Elements(dims)
	if elements < 0 {
		return fmt.Errorf("shape %s has too many elements", api.ShapeString(dims))
	}
	// elements is at most 2^30 and an element at most 8 bytes: no overflow.
	switch {
	case sec.elem != 0 && uint64(elements)*sec.elem != length:
		return fmt.Errorf("%d bytes, expected %d for %s%s", length, uint64(elements)*sec.elem, sec.spec.DType, api.ShapeString(dims))
	case sec.elem == 0 && uint64(elements)*4 > length:
		return fmt.Errorf("%d bytes cannot hold the %d elements of shape %s", length, elements, api.ShapeString(dims))
	}
	return nil
}

// checkElements checks the elements of a BYTES item with a rank.
func checkElements(data []byte, elements int64) error {
	for e := range elements {
		if len(data) < 4 {
			return fmt.Errorf("the data end before element %d of %d", e, elements)
		}
		n := binary.LittleEndian.Uint32(data)
		data = data[4:]
		if uint64(n) > uint64(len(data)) {
			return fmt.Errorf("element %d of %d has %d bytes where %d are left", e, elements, n, len(data))
		}
		data = data[n:]
	}
	if len(data) > 0 {
		return fmt.Errorf("%d bytes follow the last of %d elements", len(data), elements)
	}
	return nil
}

func (sec *section) name(s int) string {
	if sec.spec.Name == "" {
		return fmt.Sprintf("section %d", s)
	}
	return fmt.Sprintf("%q", sec.spec.Name)
}

func errNoRoom(have int) error {
	return fmt.Errorf("%w: %d bytes are too few to write it", ErrBlock, have)
}

func putExtent(dst []byte, off, length uint64) {
	binary.LittleEndian.PutUint64(dst, off)
	binary.LittleEndian.PutUint64(dst[8:], length)
}

func getExtent(src []byte) extent {
	return extent{binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])}
}

func getDim(src []byte) int64 { return int64(binary.LittleEndian.Uint64(src)) }

func putDims(dst []byte, dims []int64) {
	for j, d := range dims {
		binary.LittleEndian.PutUint64(dst[8*j:], uint64(d))
	}
}

// alignUp saturates.
func alignUp(n, align uint64) uint64 { return addSat(n, align-1) &^ (align - 1) }

func addSat(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func mulSat(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}
