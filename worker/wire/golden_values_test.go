package wire

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// The values of the golden file, in Go. Numbers stay below 2^53, which JSON numbers represent exactly in every
// language.

func goldenVectors(t *testing.T) []*vector {
	return append(append(goldenFrames(), goldenDescriptors()...), goldenBlocks(t)...)
}

var goldenSignature = api.Signature{
	Inputs: []api.TensorSpec{
		{Name: "input", DType: api.Float32, Shape: []int64{64}},
		{Name: "texte-é", DType: api.Bytes},
		{Name: "boxes", DType: api.Int64, Shape: []int64{-1, 4}},
	},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64, Shape: []int64{2, 3}}},
}

func everyDType() *api.Signature {
	sig := &api.Signature{Outputs: []api.TensorSpec{{Name: "y", DType: api.Int64}}}
	for d := api.Bool; d.Valid(); d++ {
		sig.Inputs = append(sig.Inputs, api.TensorSpec{Name: d.String(), DType: d, Shape: []int64{int64(d)}})
	}
	return sig
}

func frameVector(name, typ string, m message) *vector {
	fields, err := json.Marshal(m.fields())
	if err != nil {
		panic(err)
	}
	return &vector{Name: name, Kind: "frame", Type: typ, Fields: fields, Hex: hex.EncodeToString(m.Append(nil))}
}

func goldenFrames() []*vector {
	hello := Hello{Major: 1, Token: "t0k3n", Model: "digits-svm", Version: "1", Binding: "xebec-python/0.1.0"}
	full := hello
	full.Capabilities = CapRing | CapFeedback | CapAccuracy | CapContexts | CapConfidences
	full.Signature = &goldenSignature
	dtypes := hello
	dtypes.Signature = everyDType()
	second := full
	second.Major, second.Concurrency = 2, 16
	streams := hello
	streams.Major, streams.Concurrency, streams.Capabilities = 2, 64, CapRing|CapParameters|CapCalls|CapStreams
	streaming := Welcome{Major: 2, Mode: ModeRing | ModeParameters | ModeCalls | ModeStreams, Replica: 7, Model: "digits-svm", Version: "1", Signature: goldenSignature}
	welcome := Welcome{Major: 1, Mode: ModeRing | ModeContexts, Replica: 7, Model: "digits-svm", Version: "1", Signature: goldenSignature}
	bare := Welcome{Major: 1, Minor: 2, Replica: 1<<53 - 1, Model: "m", Version: "2024-01-02_rc.1"}
	bells := AppendBell(AppendBell(nil))
	bells = AppendDrain(AppendBell((&Ready{Generation: 2}).Append(bells)))
	bells = AppendBell((&Response{Batch: 9, Generation: 2, Kind: KindPredict, Count: 1}).Append(bells))
	return []*vector{
		frameVector("hello_without_signature", "HELLO", &helloJSON{hello}),
		frameVector("hello_with_signature", "HELLO", &helloJSON{full}),
		frameVector("hello_of_version_2", "HELLO", &helloJSON{second}),
		frameVector("hello_every_dtype", "HELLO", &helloJSON{dtypes}),
		frameVector("welcome_ring_contexts", "WELCOME", &welcomeJSON{welcome}),
		frameVector("welcome_empty_signature", "WELCOME", &welcomeJSON{bare}),
		frameVector("segments", "SEGMENTS", &segmentsJSON{Segments{Generation: 1, Entries: 64, SizeA: 1 << 20, SizeB: 3 << 20}}),
		frameVector("ready", "READY", &readyJSON{Ready{Generation: 1}}),
		frameVector("refused", "REFUSED", &refusedJSON{Refused{Code: RefusedSignature, Text: "inputs[0] is float32[32], the model declares float32[64]"}}),
		frameVector("leaving", "LEAVING", &leavingJSON{Leaving{Reason: "SIGTERM"}}),
		frameVector("leaving_without_reason", "LEAVING", &leavingJSON{}),
		frameVector("drain", "DRAIN", drainJSON{}),
		frameVector("lines", "LINES", linesJSON{}),
		frameVector("cancel", "CANCEL", &cancelJSON{Cancel{Batch: 41}}),
		frameVector("hello_with_streams", "HELLO", &helloJSON{streams}),
		frameVector("welcome_with_streams", "WELCOME", &welcomeJSON{streaming}),
		frameVector("request_frame", "REQUEST", &requestJSON{goldenRequest}),
		frameVector("response_frame", "RESPONSE", &responseJSON{goldenResponse}),
		{Name: "stream_with_bells", Kind: "stream", Frames: []string{"READY", "DRAIN", "RESPONSE"}, Hex: hex.EncodeToString(bells)},
	}
}

var (
	goldenRequest = Request{Batch: 41, Generation: 1, Kind: KindPredict, Count: 3, InOff: 8192, InLen: 832, OutOff: 12288,
		OutCap: 4096, BudgetMicros: 19500}
	goldenResponse = Response{Batch: 41, Generation: 1, Kind: KindPredict, Status: StatusOK, Count: 3, Flags: FlagConfidences,
		OutOff: 12288, OutLen: 152, WorkNanos: 123456}
)

func goldenDescriptors() []*vector {
	var vs []*vector
	request := func(name string, r Request) {
		var d [DescriptorBytes]byte
		r.Put(&d)
		fields, _ := json.Marshal(requestFields(&r))
		vs = append(vs, &vector{Name: name, Kind: "request", Fields: fields, Hex: hex.EncodeToString(d[:])})
	}
	response := func(name string, r Response) {
		var d [DescriptorBytes]byte
		r.Put(&d)
		fields, _ := json.Marshal(responseFields(&r))
		vs = append(vs, &vector{Name: name, Kind: "response", Fields: fields, Hex: hex.EncodeToString(d[:])})
	}
	request("request_predict", goldenRequest)
	request("request_feedback", Request{Batch: 42, Generation: 1, Kind: KindFeedback, Count: 2, InOff: 8192, InLen: 640})
	request("request_accuracy", Request{Batch: 43, Generation: 1, Kind: KindAccuracy, OutOff: 8192, OutCap: 128})
	request("request_grant", Request{Batch: 41, Generation: 2, Kind: KindGrant, Count: 3, OutOff: 1 << 20, OutCap: 1 << 16})
	request("request_discard", Request{Batch: 41, Generation: 1, Kind: KindDiscard})
	request("request_large_numbers", Request{Batch: 1<<53 - 1, Generation: math.MaxUint32, Kind: KindPredict, Count: math.MaxUint32,
		InOff: 1<<53 - 64, InLen: 1<<53 - 1, OutOff: 1<<52 + 64, OutCap: 1<<53 - 2, BudgetMicros: math.MaxUint32})
	response("response_ok_confidences", goldenResponse)
	response("response_ok_statuses", Response{Batch: 41, Generation: 1, Kind: KindPredict, Count: 3, Flags: FlagConfidences | FlagStatuses, OutOff: 12288, OutLen: 400, WorkNanos: 7})
	response("response_model_error", Response{Batch: 44, Generation: 1, Kind: KindPredict, Status: StatusModelError, Count: 3, OutOff: 12288, OutLen: 21, WorkNanos: 5})
	response("response_bad_output", Response{Batch: 45, Generation: 1, Kind: KindPredict, Status: StatusBadOutput, Count: 3, OutOff: 12288, OutLen: 40})
	response("response_need_more", Response{Batch: 46, Generation: 1, Kind: KindPredict, Status: StatusNeedMore, Count: 3, OutOff: 12288, Need: 65600})
	response("response_more", Response{Batch: 48, Generation: 1, Kind: KindPredict, Status: StatusMore, Count: 5, OutOff: 12288, OutLen: 640, WorkNanos: 11})
	response("response_end_of_stream", Response{Batch: 48, Generation: 1, Kind: KindPredict, OutOff: 12288})
	response("response_unsupported", Response{Batch: 47, Generation: 1, Kind: KindFeedback, Status: StatusUnsupported, Count: 1})
	response("response_accuracy", Response{Batch: 43, Generation: 1, Kind: KindAccuracy, OutOff: 8192, OutLen: 72, WorkNanos: 10})
	return vs
}

func f32(vs ...float32) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func f64(vs ...float64) (b []byte) {
	for _, v := range vs {
		bits := math.Float64bits(v)
		if math.IsNaN(v) {
			bits = canonicalNaN
		}
		b = binary.LittleEndian.AppendUint64(b, bits)
	}
	return b
}

func i64(vs ...int64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func elements(vs ...string) (b []byte) {
	for _, v := range vs {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b
}

func plain(data ...[]byte) (vs []api.Value) {
	for _, d := range data {
		vs = append(vs, api.Value{Data: d})
	}
	return vs
}

// spec parses "float32[-1, 3]"; a name may come before a space.
func spec(s string) api.TensorSpec {
	name, rest, _ := strings.Cut(s, " ")
	typ, dims, _ := strings.Cut(strings.TrimSuffix(rest, "]"), "[")
	d, err := api.ParseDType(typ)
	if err != nil {
		panic(err)
	}
	t := api.TensorSpec{Name: name, DType: d}
	for _, dim := range strings.FieldsFunc(dims, func(r rune) bool { return r == ',' }) {
		var n int64
		if _, err := fmt.Sscan(dim, &n); err != nil {
			panic(err)
		}
		t.Shape = append(t.Shape, n)
	}
	return t
}

func specs(ss ...string) (ts []api.TensorSpec) {
	for _, s := range ss {
		ts = append(ts, spec(s))
	}
	return ts
}

func ramp(start float32) []byte {
	var b []byte
	for i := range 64 {
		b = append(b, f32(start+float32(i)/4)...)
	}
	return b
}

func goldenBlocks(t *testing.T) []*vector {
	block := func(name string, sections []api.TensorSpec, values columns) *vector {
		sc := NewSchema(sections)
		b := make([]byte, sc.Size(values))
		if _, err := sc.Write(b, values); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return blockVector(t, name, sections, values, b)
	}
	ragged2 := []api.Value{{Data: f32(1, 2, 3), Dims: []int64{1, 3}}, {Data: nil, Dims: []int64{0, 3}}, {Data: f32(4, 5, 6, 7, 8, 9), Dims: []int64{2, 3}}}
	strs := []api.Value{{Data: elements("a", "bcd"), Dims: []int64{2}}, {Data: elements("", ""), Dims: []int64{2}}, {Data: elements("héllo", "\x00\xff"), Dims: []int64{2}}}
	dtypes := everyDType().Inputs
	var one columns
	for _, s := range dtypes {
		if s.DType.Variable() {
			texts := []string{"0", "", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "twelve", "treize é"}[:s.Shape[0]]
			one = append(one, []api.Value{{Data: elements(texts...), Dims: s.Shape}})
			continue
		}
		var data []byte
		for e := range s.Shape[0] {
			data = appendElement(t, data, s.DType, float64(e%2))
		}
		one = append(one, plain(data))
	}
	return []*vector{
		block("block_fixed_batch_of_3", specs("input float32[64]"), columns{plain(ramp(0), ramp(16), ramp(-8.5))}),
		block("block_scalars", specs("output int64[]"), columns{plain(i64(7), i64(-1), i64(1<<53-1))}),
		block("block_several_inputs", specs("a float32[2,2]", "b bytes[]", "c uint8[3]"),
			columns{plain(f32(1, 2, 3, 4), f32(5, 6, 7, 8)), plain([]byte("hello"), nil), plain([]byte{1, 2, 3}, []byte{4, 5, 6})}),
		block("block_every_dtype", dtypes, one),
		block("block_ragged_vector", specs("input float32[-1]"), columns{{{Data: f32(1.5), Dims: []int64{1}}, {Dims: []int64{0}}, {Data: f32(1, 2, 3), Dims: []int64{3}}}}),
		block("block_ragged_matrix", specs("input float32[-1,3]"), columns{ragged2}),
		block("block_bytes_scalars", specs("input bytes[]"), columns{plain([]byte("one"), nil, []byte{0, 0xff, 7}, []byte("a somewhat longer text"))}),
		block("block_bytes_vector", specs("input bytes[2]"), columns{strs}),
		block("block_bytes_any_rank_2", specs("input bytes[-1,2]"), columns{{{Data: elements("x", "y", "z", ""), Dims: []int64{2, 2}}, {Dims: []int64{0, 2}}}}),
		block("block_with_contexts", append(specs("input float32[2]"), BytesSection),
			columns{plain(f32(1, 2), f32(3, 4)), plain([]byte("user-17"), nil)}),
		block("block_feedback_with_contexts_and_labels", append(specs("input float32[2]"), BytesSection, BytesSection),
			columns{plain(f32(1, 2), f32(3, 4)), plain([]byte("user-17"), []byte("user-18")), plain([]byte("3"), []byte(`{"label":"cat"}`))}),
		block("block_outputs_with_confidences", append(specs("output int64[]"), ConfidenceSection),
			columns{plain(i64(3), i64(5), i64(8)), plain(f64(0.5), f64(math.NaN()), f64(1))}),
		block("block_outputs_with_statuses", append(specs("output int64[]", "text bytes[]"), StatusSection, BytesSection),
			columns{plain(i64(3), i64(0), i64(8)), plain([]byte("three"), nil, []byte("eight")), plain([]byte{0, 0}, []byte{1, 0}, []byte{0, 0}), plain(nil, []byte("not a picture"), nil)}),
		block("block_accuracy", specs("accuracy float64[]"), columns{plain(f64(0.9375))}),
		block("block_empty_dimension", specs("input float32[0]", "b int64[]"), columns{plain(nil, nil), plain(i64(1), i64(2))}),
		goldenBuilt(t),
	}
}

// goldenBuilt is a block laid out by a Builder: the sections are not in the order of the table.
func goldenBuilt(t *testing.T) *vector {
	sections := specs("text bytes[]", "score float64[]", "boxes float32[-1,2]")
	block := make([]byte, 1024)
	var b Builder
	if err := b.Begin(NewSchema(sections), block, 2); err != nil {
		t.Fatal(err)
	}
	values := columns{
		plain([]byte("first"), []byte("second")), plain(f64(0.25), f64(0.75)),
		{{Data: f32(1, 2), Dims: []int64{1, 2}}, {Data: f32(3, 4, 5, 6), Dims: []int64{2, 2}}},
	}
	for _, i := range []int{1, 0} { // nor are the items in the order of the queries
		for _, s := range []int{0, 2} {
			dst, err := b.Item(s, i, len(values[s][i].Data), values[s][i].Dims)
			if err != nil {
				t.Fatal(err)
			}
			copy(dst, values[s][i].Data)
		}
	}
	copy(b.Fixed(1), f64(0.25, 0.75))
	n, kept, err := b.Finish()
	if err != nil || kept != nil {
		t.Fatal(err, kept)
	}
	v := blockVector(t, "block_sections_and_items_in_another_order", sections, values, block[:n])
	v.Layout = "any"
	return v
}

func blockVector(t *testing.T, name string, sections []api.TensorSpec, values columns, b []byte) *vector {
	v := &vector{Name: name, Kind: "block", Sections: jsonTensors(sections), Hex: hex.EncodeToString(b)}
	count := values.Len()
	v.Count = &count
	for s, column := range values {
		var items []jsonItem
		for _, value := range column {
			items = append(items, itemToJSON(sections[s].DType, value.Data, value.Dims, !sections[s].Fixed() && len(sections[s].Shape) > 0))
		}
		v.Items = append(v.Items, items)
	}
	return v
}
