package inferlog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// Errors in a frame's contents. After errEntry the next entry can be read, after errFrame nothing more of the frame.
var (
	errEntry = errors.New("malformed entry")
	errFrame = errors.New("malformed entries")
)

// Limits of what is cached across frames.
const (
	maxSchemas  = 1 << 12
	maxInterned = 1 << 12
)

// decoder reads the entries of one frame at a time. Its results refer to the frame and the decoder's own memory.
type decoder struct {
	text     cursor
	streams  map[uint64]*Schema // of this frame
	schemas  map[string]*Schema // by encoded form
	interned map[string]string  // names and versions of models
	entry    Entry
}

func (d *decoder) begin(raw []byte) {
	d.text = cursor{rest: raw}
	if d.streams == nil {
		d.streams, d.schemas, d.interned = map[uint64]*Schema{}, map[string]*Schema{}, map[string]string{}
	}
	clear(d.streams)
}

// next returns the next query or feedback, or nil at the end.
func (d *decoder) next() (*Entry, error) {
	for len(d.text.rest) > 0 {
		n := d.text.u32()
		body := d.text.take(uint64(n))
		if d.text.bad || n == 0 {
			return nil, errFrame
		}
		c := cursor{rest: body[1:]}
		stream := c.uvarint()
		if body[0] == entrySchema {
			if err := d.schema(stream, c); err != nil {
				return nil, err
			}
			continue
		}
		schema := d.streams[stream]
		if schema == nil || c.bad {
			return nil, fmt.Errorf("%w: its function's schema is missing", errEntry)
		}
		e := &d.entry
		e.Schema, e.Kind = schema, EntryKind(body[0])
		var err error
		switch e.Kind {
		case KindQuery:
			err = d.record(&e.Record, schema, &c)
		case KindFeedback:
			err = d.feedback(&e.Feedback, &c)
		default:
			err = fmt.Errorf("%w: unknown kind %d", errEntry, body[0])
		}
		if err == nil && (c.bad || len(c.rest) > 0) {
			err = fmt.Errorf("%w: its lengths are inconsistent", errEntry)
		}
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	return nil, nil
}

// schema reads a schema. It reuses an equal schema of an earlier frame, so that callers can compare pointers.
func (d *decoder) schema(stream uint64, c cursor) error {
	if len(d.streams) >= maxFrameTypes {
		return fmt.Errorf("%w: more than %d functions", errFrame, maxFrameTypes)
	}
	if s := d.schemas[string(c.rest)]; s != nil && !c.bad {
		d.streams[stream] = s
		return nil
	}
	encoded := string(c.rest)
	s := &Schema{Sample: math.Float64frombits(c.u64()), Function: string(c.text())}
	s.Inputs, s.Outputs = specs(&c), specs(&c)
	if c.bad || len(c.rest) > 0 {
		return fmt.Errorf("%w: a function's schema is cut off or too long", errEntry)
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("%w: %w", errEntry, err)
	}
	if len(d.schemas) >= maxSchemas {
		clear(d.schemas)
	}
	d.schemas[encoded] = s
	d.streams[stream] = s
	return nil
}

func specs(c *cursor) []api.TensorSpec {
	n := c.uvarint()
	if n > maxTensors {
		c.bad = true
	}
	var all []api.TensorSpec
	for i := uint64(0); i < n && !c.bad; i++ {
		s := api.TensorSpec{Name: string(c.text()), DType: api.DType(c.u8())}
		rank := c.uvarint()
		if rank > api.MaxRank {
			c.bad = true
		}
		for j := uint64(0); j < rank && !c.bad; j++ {
			s.Shape = append(s.Shape, c.varint())
		}
		all = append(all, s)
	}
	return all
}

func (s *Schema) check() error {
	if err := api.CheckName("function", s.Function); err != nil {
		return err
	}
	if !(s.Sample >= 0 && s.Sample <= 1) {
		return fmt.Errorf("function %s has a sample of %v, expected 0 to 1", s.Function, s.Sample)
	}
	if len(s.Inputs) == 0 || len(s.Outputs) == 0 {
		return fmt.Errorf("function %s has no inputs or no outputs", s.Function)
	}
	for _, list := range [][]api.TensorSpec{s.Inputs, s.Outputs} {
		for i := range list {
			t := &list[i]
			if !t.DType.Valid() || len(t.Name) > maxNameBytes || !utf8.ValidString(t.Name) {
				return fmt.Errorf("function %s has a tensor with an invalid type or name", s.Function)
			}
			for _, d := range t.Shape {
				if d < -1 || d > api.MaxItemBytes { // a value cannot be larger
					return fmt.Errorf("function %s has a tensor with the invalid shape %s", s.Function, api.ShapeString(t.Shape))
				}
			}
		}
	}
	return nil
}

func (d *decoder) record(r *Record, s *Schema, c *cursor) error {
	r.ID, r.AtMicros = c.u64(), int64(c.u64())
	took := c.uvarint()
	r.TookMicros = int64(min(took, math.MaxInt64))
	r.Code = api.Code(c.u8())
	flags := c.u8()
	r.Default = flags&flagDefault != 0
	r.Confidence = math.Float64frombits(c.u64())
	r.RequestID = nil
	if flags&flagRequestID != 0 {
		r.RequestID = c.text()
	}
	r.Context = c.text()
	models := c.uvarint()
	if models > maxModels {
		c.bad = true
	}
	r.Models = r.Models[:0]
	for i := uint64(0); i < models && !c.bad; i++ {
		r.Models = append(r.Models, api.ModelID{Name: d.intern(c.text()), Version: d.intern(c.text())})
	}
	var err error
	if r.Inputs, err = values(r.Inputs, s.Inputs, c); err != nil {
		return err
	}
	outputs := s.Outputs
	if flags&flagOutputs == 0 {
		outputs = nil
	}
	r.Outputs, err = values(r.Outputs, outputs, c)
	return err
}

func (d *decoder) feedback(f *Feedback, c *cursor) error {
	f.ID, f.AtMicros = c.u64(), int64(c.u64())
	f.Kind = FeedbackKind(c.u8())
	f.Loss = math.Float64frombits(c.u64())
	f.Label, f.Context = c.text(), c.text()
	switch {
	case c.bad:
		return fmt.Errorf("%w: feedback is cut off", errEntry)
	case f.Kind < FeedbackLabel || f.Kind > FeedbackLoss:
		return fmt.Errorf("%w: feedback has unknown kind %d", errEntry, f.Kind)
	case f.Kind == FeedbackLabel && !(json.Valid(f.Label) && utf8.Valid(f.Label)):
		return fmt.Errorf("%w: a label is not JSON", errEntry)
	case !(f.Loss >= 0 && f.Loss <= 1):
		return fmt.Errorf("%w: a loss is %v, expected 0 to 1", errEntry, f.Loss)
	}
	return nil
}

// intern returns b as a string, without allocating it again for known names.
func (d *decoder) intern(b []byte) string {
	if s, ok := d.interned[string(b)]; ok {
		return s
	}
	if len(d.interned) >= maxInterned {
		clear(d.interned)
	}
	s := string(b)
	d.interned[s] = s
	return s
}

// values reads one value for each spec into the memory of into, and checks it against the spec.
func values(into []api.Value, specs []api.TensorSpec, c *cursor) ([]api.Value, error) {
	for cap(into) < len(specs) {
		into = append(into[:cap(into)], api.Value{})
	}
	into = into[:len(specs)]
	for i := range specs {
		v := &into[i]
		rank := c.uvarint()
		if rank > api.MaxRank {
			c.bad = true
		}
		v.Dims = v.Dims[:0]
		for j := uint64(0); j < rank && !c.bad; j++ {
			v.Dims = append(v.Dims, int64(c.uvarint()))
		}
		v.Data = c.text()
		if c.bad {
			return into, fmt.Errorf("%w: a value is cut off", errEntry)
		}
		if !fits(&specs[i], v) {
			return into, fmt.Errorf("%w: a value of %d bytes and shape %s is not a %s", errEntry, len(v.Data), api.ShapeString(v.Dims), specs[i])
		}
	}
	return into, nil
}

// fits reports whether a value conforms to the spec.
func fits(s *api.TensorSpec, v *api.Value) bool {
	dims := s.Shape
	if !s.Fixed() && len(s.Shape) > 0 {
		dims = v.Dims
	} else if len(v.Dims) > 0 {
		return false
	}
	n := api.Elements(dims)
	if n < 0 || !api.FitsShape(s.Shape, dims) {
		return false
	}
	if !s.DType.Variable() {
		return int64(len(v.Data)) == n*int64(s.DType.Size())
	}
	if len(dims) == 0 {
		return true
	}
	data := v.Data
	for ; n > 0; n-- {
		if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
			return false
		}
		data = data[4+binary.LittleEndian.Uint32(data):]
	}
	return len(data) == 0
}

// cursor takes numbers and bytes from the front of rest. After a failed read, bad is true and every read returns zero.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.rest)) {
		c.bad = true
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) u8() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	if c.bad || n <= 0 {
		c.bad = true
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.rest)
	if c.bad || n <= 0 {
		c.bad = true
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// text takes a length and that many bytes.
func (c *cursor) text() []byte { return c.take(c.uvarint()) }
