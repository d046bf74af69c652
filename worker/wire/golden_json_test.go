package wire

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Types of the golden file. They are separate from the package's own types so that renaming a field does not change
// what other languages read.

type jsonTensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

func (j jsonTensor) dtype() api.DType {
	d, err := api.ParseDType(j.DType)
	if err != nil {
		panic(err)
	}
	return d
}

func (j jsonTensor) spec() api.TensorSpec {
	return api.TensorSpec{Name: j.Name, DType: j.dtype(), Shape: j.Shape}
}

type jsonSignature struct {
	Inputs  []jsonTensor `json:"inputs"`
	Outputs []jsonTensor `json:"outputs"`
}

func tensorSpecs(ts []jsonTensor) []api.TensorSpec {
	specs := make([]api.TensorSpec, 0, len(ts))
	for _, j := range ts {
		specs = append(specs, j.spec())
	}
	return specs
}

func jsonTensors(specs []api.TensorSpec) []jsonTensor {
	ts := []jsonTensor{}
	for _, t := range specs {
		ts = append(ts, jsonTensor{t.Name, t.DType.String(), append([]int64{}, t.Shape...)})
	}
	return ts
}

func jsonSignatureOf(sig *api.Signature) *jsonSignature {
	if sig == nil {
		return nil
	}
	return &jsonSignature{jsonTensors(sig.Inputs), jsonTensors(sig.Outputs)}
}

func (j *jsonSignature) signature() *api.Signature {
	if j == nil {
		return nil
	}
	return &api.Signature{Inputs: tensorSpecs(j.Inputs), Outputs: tensorSpecs(j.Outputs)}
}

// message converts a frame's message between both forms.
type message interface {
	Append(dst []byte) []byte
	Decode(payload []byte) error
	fields() any
	setFields(raw json.RawMessage) error
}

func newMessage(typ string) message {
	switch typ {
	case "HELLO":
		return &helloJSON{}
	case "WELCOME":
		return &welcomeJSON{}
	case "SEGMENTS":
		return &segmentsJSON{}
	case "READY":
		return &readyJSON{}
	case "REFUSED":
		return &refusedJSON{}
	case "LEAVING":
		return &leavingJSON{}
	case "LINES":
		return linesJSON{}
	case "DRAIN":
		return drainJSON{}
	case "CANCEL":
		return &cancelJSON{}
	case "REQUEST":
		return &requestJSON{}
	case "RESPONSE":
		return &responseJSON{}
	}
	return nil
}

type helloFields struct {
	Major        uint16         `json:"major"`
	Minor        uint16         `json:"minor"`
	Capabilities uint32         `json:"capabilities"`
	Token        string         `json:"token"`
	Model        string         `json:"model"`
	Version      string         `json:"version"`
	Binding      string         `json:"binding"`
	Signature    *jsonSignature `json:"signature"`
	Concurrency  uint16         `json:"concurrency"`
}

type helloJSON struct{ Hello }

func (m *helloJSON) fields() any {
	return helloFields{m.Major, m.Minor, m.Capabilities, m.Token, m.Model, m.Version, m.Binding, jsonSignatureOf(m.Signature), max(m.Concurrency, 1)}
}

func (m *helloJSON) setFields(raw json.RawMessage) error {
	var f helloFields
	err := json.Unmarshal(raw, &f)
	m.Hello = Hello{f.Major, f.Minor, f.Capabilities, f.Token, f.Model, f.Version, f.Binding, f.Signature.signature(), f.Concurrency}
	return err
}

type welcomeFields struct {
	Major     uint16         `json:"major"`
	Minor     uint16         `json:"minor"`
	Mode      uint32         `json:"mode"`
	Replica   uint64         `json:"replica"`
	Model     string         `json:"model"`
	Version   string         `json:"version"`
	Signature *jsonSignature `json:"signature"`
}

type welcomeJSON struct{ Welcome }

func (m *welcomeJSON) fields() any {
	return welcomeFields{m.Major, m.Minor, m.Mode, m.Replica, m.Model, m.Version, jsonSignatureOf(&m.Signature)}
}

func (m *welcomeJSON) setFields(raw json.RawMessage) error {
	var f welcomeFields
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	m.Welcome = Welcome{f.Major, f.Minor, f.Mode, f.Replica, f.Model, f.Version, *f.Signature.signature()}
	return nil
}

type segmentsFields struct {
	Generation uint32 `json:"generation"`
	Entries    uint32 `json:"entries"`
	SizeA      uint64 `json:"size_a"`
	SizeB      uint64 `json:"size_b"`
}

type segmentsJSON struct{ Segments }

func (m *segmentsJSON) fields() any { return segmentsFields(m.Segments) }

func (m *segmentsJSON) setFields(raw json.RawMessage) error {
	var f segmentsFields
	err := json.Unmarshal(raw, &f)
	m.Segments = Segments(f)
	return err
}

type readyFields struct {
	Generation uint32 `json:"generation"`
}

type readyJSON struct{ Ready }

func (m *readyJSON) fields() any { return readyFields(m.Ready) }

func (m *readyJSON) setFields(raw json.RawMessage) error {
	var f readyFields
	err := json.Unmarshal(raw, &f)
	m.Ready = Ready(f)
	return err
}

type refusedFields struct {
	Code uint16 `json:"code"`
	Text string `json:"text"`
}

type refusedJSON struct{ Refused }

func (m *refusedJSON) fields() any { return refusedFields(m.Refused) }

func (m *refusedJSON) setFields(raw json.RawMessage) error {
	var f refusedFields
	err := json.Unmarshal(raw, &f)
	m.Refused = Refused(f)
	return err
}

type leavingFields struct {
	Reason string `json:"reason"`
}

type leavingJSON struct{ Leaving }

func (m *leavingJSON) fields() any { return leavingFields(m.Leaving) }

func (m *leavingJSON) setFields(raw json.RawMessage) error {
	var f leavingFields
	err := json.Unmarshal(raw, &f)
	m.Leaving = Leaving(f)
	return err
}

type cancelFields struct {
	Batch uint64 `json:"batch"`
}

type cancelJSON struct{ Cancel }

func (m *cancelJSON) fields() any { return cancelFields(m.Cancel) }

func (m *cancelJSON) setFields(raw json.RawMessage) error {
	var f cancelFields
	err := json.Unmarshal(raw, &f)
	m.Cancel = Cancel(f)
	return err
}

type linesJSON struct{}

func (linesJSON) Append(dst []byte) []byte        { return AppendLines(dst) }
func (linesJSON) Decode(payload []byte) error     { return DecodeLines(payload) }
func (linesJSON) fields() any                     { return struct{}{} }
func (linesJSON) setFields(json.RawMessage) error { return nil }

type drainJSON struct{}

func (drainJSON) Append(dst []byte) []byte        { return AppendDrain(dst) }
func (drainJSON) Decode(payload []byte) error     { return DecodeDrain(payload) }
func (drainJSON) fields() any                     { return struct{}{} }
func (drainJSON) setFields(json.RawMessage) error { return nil }

type requestFieldsJSON struct {
	Batch        uint64 `json:"batch"`
	Generation   uint32 `json:"generation"`
	Kind         string `json:"kind"`
	Count        uint32 `json:"count"`
	InOff        uint64 `json:"in_off"`
	InLen        uint64 `json:"in_len"`
	OutOff       uint64 `json:"out_off"`
	OutCap       uint64 `json:"out_cap"`
	BudgetMicros uint32 `json:"budget_micros"`
}

func requestFields(r *Request) any {
	return requestFieldsJSON{r.Batch, r.Generation, r.Kind.String(), r.Count, r.InOff, r.InLen, r.OutOff, r.OutCap, r.BudgetMicros}
}

type requestJSON struct{ Request }

func (m *requestJSON) fields() any { return requestFields(&m.Request) }

func (m *requestJSON) setFields(raw json.RawMessage) error {
	var f requestFieldsJSON
	err := json.Unmarshal(raw, &f)
	m.Request = Request{f.Batch, f.Generation, kindNamed(f.Kind), f.Count, f.InOff, f.InLen, f.OutOff, f.OutCap, f.BudgetMicros}
	return err
}

type responseFieldsJSON struct {
	Batch      uint64 `json:"batch"`
	Generation uint32 `json:"generation"`
	Kind       string `json:"kind"`
	Status     string `json:"status"`
	Count      uint32 `json:"count"`
	Flags      uint32 `json:"flags"`
	OutOff     uint64 `json:"out_off"`
	OutLen     uint64 `json:"out_len"`
	Need       uint64 `json:"need"`
	WorkNanos  uint64 `json:"work_nanos"`
}

func responseFields(r *Response) any {
	return responseFieldsJSON{r.Batch, r.Generation, r.Kind.String(), r.Status.String(), r.Count, r.Flags, r.OutOff, r.OutLen, r.Need, r.WorkNanos}
}

type responseJSON struct{ Response }

func (m *responseJSON) fields() any { return responseFields(&m.Response) }

func (m *responseJSON) setFields(raw json.RawMessage) error {
	var f responseFieldsJSON
	err := json.Unmarshal(raw, &f)
	m.Response = Response{f.Batch, f.Generation, kindNamed(f.Kind), statusNamed(f.Status), f.Count, f.Flags, f.OutOff, f.OutLen, f.Need, f.WorkNanos}
	return err
}

func kindNamed(name string) Kind {
	for k := KindPredict; k <= KindDiscard; k++ {
		if k.String() == name {
			return k
		}
	}
	return 0
}

func statusNamed(name string) Status {
	for s := StatusOK; s <= StatusMore; s++ {
		if s.String() == name {
			return s
		}
	}
	return ^Status(0)
}

// jsonItem is one query's tensor: elements flattened row-major, bytes in hexadecimal, NaN and infinities as strings.
type jsonItem struct {
	Dims []int64 `json:"dims,omitempty"`
	Data any     `json:"data"`
}

func itemToJSON(d api.DType, data []byte, dims []int64, ranked bool) jsonItem {
	item := jsonItem{Dims: dims}
	if d.Variable() && !ranked {
		item.Data = hex.EncodeToString(data)
		return item
	}
	out := []any{}
	if d.Variable() {
		for len(data) > 0 {
			n := binary.LittleEndian.Uint32(data)
			out = append(out, hex.EncodeToString(data[4:4+n]))
			data = data[4+n:]
		}
	}
	for size := d.Size(); size > 0 && len(data) > 0; data = data[size:] {
		out = append(out, elementToJSON(d, data))
	}
	item.Data = out
	return item
}

func elementToJSON(d api.DType, b []byte) any {
	le := binary.LittleEndian
	switch d {
	case api.Bool:
		return b[0] != 0
	case api.Uint8:
		return b[0]
	case api.Uint16:
		return le.Uint16(b)
	case api.Uint32:
		return le.Uint32(b)
	case api.Uint64:
		return le.Uint64(b)
	case api.Int8:
		return int8(b[0])
	case api.Int16:
		return int16(le.Uint16(b))
	case api.Int32:
		return int32(le.Uint32(b))
	case api.Int64:
		return int64(le.Uint64(b))
	case api.BFloat16:
		return floatToJSON(float64(api.BFloat16ToFloat32(le.Uint16(b))))
	case api.Float16:
		return floatToJSON(float64(api.Float16ToFloat32(le.Uint16(b))))
	case api.Float32:
		return floatToJSON(float64(math.Float32frombits(le.Uint32(b))))
	case api.Float64:
		return floatToJSON(math.Float64frombits(le.Uint64(b)))
	}
	panic("no such dtype")
}

func floatToJSON(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return f
}

func itemFromJSON(t *testing.T, d api.DType, item jsonItem) api.Value {
	t.Helper()
	unhex := func(v any) []byte {
		b, err := hex.DecodeString(v.(string))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	value := api.Value{Dims: item.Dims}
	list, ok := item.Data.([]any)
	if !ok {
		value.Data = unhex(item.Data)
		return value
	}
	for _, e := range list {
		if d.Variable() {
			b := unhex(e)
			value.Data = binary.LittleEndian.AppendUint32(value.Data, uint32(len(b)))
			value.Data = append(value.Data, b...)
			continue
		}
		value.Data = appendElement(t, value.Data, d, e)
	}
	return value
}

const canonicalNaN = 0x7ff8000000000000

func appendElement(t *testing.T, dst []byte, d api.DType, e any) []byte {
	t.Helper()
	var f float64
	switch e := e.(type) {
	case bool:
		if e {
			f = 1
		}
	case float64:
		f = e
	case string:
		if _, err := fmt.Sscan(e, &f); err != nil {
			t.Fatal(err)
		}
	}
	le := binary.LittleEndian
	switch d {
	case api.Bool, api.Uint8:
		return append(dst, byte(f))
	case api.Int8:
		return append(dst, byte(int8(f)))
	case api.Uint16:
		return le.AppendUint16(dst, uint16(f))
	case api.Int16:
		return le.AppendUint16(dst, uint16(int16(f)))
	case api.Uint32:
		return le.AppendUint32(dst, uint32(f))
	case api.Int32:
		return le.AppendUint32(dst, uint32(int32(f)))
	case api.Uint64:
		return le.AppendUint64(dst, uint64(f))
	case api.Int64:
		return le.AppendUint64(dst, uint64(int64(f)))
	case api.BFloat16:
		return le.AppendUint16(dst, api.Float64ToBFloat16(f))
	case api.Float16:
		return le.AppendUint16(dst, api.Float64ToFloat16(f))
	case api.Float32:
		return le.AppendUint32(dst, math.Float32bits(float32(f)))
	case api.Float64:
		if math.IsNaN(f) {
			return le.AppendUint64(dst, canonicalNaN) // Go's own NaN has a payload; that of other languages has none
		}
		return le.AppendUint64(dst, math.Float64bits(f))
	}
	panic("no such dtype")
}
