package inferlog

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// checkEntry checks that an entry is as Entry promises, and that it can be written.
func checkEntry(t *testing.T, e *Entry) {
	text := e.JSON(nil)
	if !json.Valid(text) {
		t.Fatalf("not JSON: %q", text)
	}
	for _, c := range text {
		if c == '\n' || c == '\r' {
			t.Fatalf("more than one line: %q", text)
		}
	}
	if e.Kind == KindFeedback {
		return
	}
	r, s := &e.Record, e.Schema
	if len(r.Inputs) != len(s.Inputs) || len(r.Outputs) != 0 && len(r.Outputs) != len(s.Outputs) {
		t.Fatalf("%d inputs and %d outputs for %+v", len(r.Inputs), len(r.Outputs), s)
	}
	for i := range r.Inputs {
		if n := s.Inputs[i].ItemBytes(); s.Inputs[i].Fixed() && api.Elements(s.Inputs[i].Shape) >= 0 && n != len(r.Inputs[i].Data) {
			t.Fatalf("an input of %d bytes does not fit %s", len(r.Inputs[i].Data), s.Inputs[i])
		}
	}
}

// FuzzRead reads arbitrary bytes as a file.
func FuzzRead(f *testing.F) {
	text, at := sampleFile(f)
	f.Add(text)
	f.Add(text[:at[1]+30])
	f.Add(flip(text, at[1]+40))
	f.Add(join(text[:at[0]], text[at[1]:]))
	raw := appendRecord(appendSchema(nil, 1, &Schema{Function: "digits", Inputs: digitsIn, Outputs: digitsOut}), 1, query(3))
	f.Add(join(text[:at[0]], frameOf(f, frameS2, raw, len(raw)), frameOf(f, frameStored, raw, len(raw))))
	var t *testing.T // of the current input: one reader for all inputs, because its buffers are large
	r, err := newReader(func(e *Entry) error {
		checkEntry(t, e)
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	defer r.zstd.Close()
	f.Fuzz(func(now *testing.T, text []byte) {
		t, r.sum = now, &Summary{}
		if err := r.stream("text", bytes.NewReader(text)); err == nil && r.sum.FileBytes != int64(len(text)) {
			t.Fatalf("%d of %d bytes are accounted for", r.sum.FileBytes, len(text))
		}
	})
}

// FuzzEntries reads arbitrary entries in a frame with valid checksums.
func FuzzEntries(f *testing.F) {
	s := Schema{Function: "digits", Sample: 0.5, Inputs: digitsIn, Outputs: digitsOut}
	f.Add(appendFeedback(appendRecord(appendSchema(nil, 1, &s), 1, query(3)), 1, &Feedback{ID: 3, Kind: FeedbackLabel, Label: []byte(`{"a": 1}`)}))
	text := Schema{
		Function: "text", Inputs: []api.TensorSpec{{Name: "x", DType: api.Bytes, Shape: []int64{-1, 2}}, {Name: "y", DType: api.Float16, Shape: []int64{-1}}},
		Outputs: []api.TensorSpec{{Name: "z", DType: api.Bytes}},
	}
	f.Add(appendRecord(appendSchema(nil, 7, &text), 7, &Record{
		Inputs: []api.Value{{Data: []byte("\x01\x00\x00\x00a\x02\x00\x00\x00\xff\xfe"), Dims: []int64{1, 2}}, {Dims: []int64{0}}}, Outputs: []api.Value{{Data: []byte("x")}},
	}))
	f.Add(appendRecord(appendSchema(nil, 1, &s), 2, query(3)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d decoder
		for range 2 { // the second time with what was cached the first time
			d.begin(raw)
			for range len(raw) + 1 {
				e, err := d.next()
				if e == nil && err == nil {
					break
				}
				if err == nil {
					checkEntry(t, e)
				}
			}
		}
	})
}
