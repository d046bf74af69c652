package native

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func TestRawKind(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                    false,
		"*/*":                                 false,
		"application/*":                       false,
		"application/json":                    false,
		"text/html":                           false,
		"application/octet-stream":            true,
		"Application/Octet-Stream":            true,
		"application/octet-stream, */*":       true,
		"*/*;q=0.8, application/octet-stream": true,
		"application/octet-stream;q=0.5, */*": false,
		"application/octet-stream, application/json":                    false,
		"application/octet-stream, application/json;q=0.9":              true,
		"application/json;q=0.9,application/octet-stream;q=0.901":       true,
		"application/octet-stream;q=0":                                  false,
		"application/octet-stream;q=0.000":                              false,
		"application/octet-stream;q=1.5":                                false,
		"application/octet-stream;q=high":                               false,
		"application/octet-stream; charset=x; Q=0.2, application/*;q=0": true,
		",;,application/octet-stream;;q=1.000":                          true,
		"application/octet-streams":                                     false,
	} {
		if got := rawKind([]byte(accept), "") == octetStream; got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

// TestRawKindOfMedia: a declared media type is an answer like the bytes without a type, also by its range.
func TestRawKindOfMedia(t *testing.T) {
	for accept, want := range map[string]string{
		"image/png":                         "image/png",
		"IMAGE/PNG":                         "image/png",
		"image/*":                           "image/png",
		"image/jpeg":                        "",
		"image/p":                           "",
		"image*":                            "",
		"audio/*":                           "",
		"*/*":                               "",
		"image/png;q=0.5, */*":              "",
		"image/png, application/json;q=0.9": "image/png",
		"image/png, application/json":       "",
		"image/png;q=0, */*":                "",
		"application/octet-stream":          octetStream,
		"application/octet-stream, image/png;q=0.9": octetStream,
		"application/octet-stream, image/png":       "image/png",
		"image/avif,image/webp,image/*,*/*;q=0.8":   "image/png",
		"text/html,application/xml;q=0.9,*/*;q=0.8": "",
		"application/json;q=0.2,image/png;q=0.201":  "image/png",
	} {
		if got := rawKind([]byte(accept), "image/png"); got != want {
			t.Errorf("%q: %q, want %q", accept, got, want)
		}
	}
}

// FuzzRawKind: any Accept is judged without a panic, and one that does not name the type means JSON.
func FuzzRawKind(f *testing.F) {
	f.Add("application/octet-stream;q=0.5, */*;q=0.1")
	f.Add(";q=,application/octet-stream;q=1.")
	f.Fuzz(func(t *testing.T, accept string) {
		if rawKind([]byte(accept), "") != "" && !strings.Contains(strings.ToLower(accept), octetStream) {
			t.Errorf("%q means bytes", accept)
		}
		if rawKind([]byte(accept), "image/png") == "image/png" && !strings.Contains(strings.ToLower(accept), "image/") {
			t.Errorf("%q means an image", accept)
		}
	})
}

func fields(a *dialect.Answer) string {
	var all []string
	for _, f := range a.Fields {
		if strings.HasPrefix(f.Name, "Xebec-") && f.Name != "Xebec-Query-Id" {
			all = append(all, f.Name+": "+string(f.Value))
		}
	}
	return strings.Join(all, "; ")
}

// TestRawAnswers: the output itself is the body, a default too, and the fields say the rest. Errors are JSON.
func TestRawAnswers(t *testing.T) {
	echo := func(it *scheduler.Item) { querytest.End(it, api.OK, it.Inputs[0].Data) }
	fail := func(it *scheduler.Item) { querytest.End(it, api.ModelError) }
	for _, c := range []struct {
		name   string
		sig    api.Signature
		submit func(*scheduler.Item)
		change []func(*fixture)
		input  string
		status int
		kind   string
		body   string // a prefix
		fields string
	}{
		{"bytes", querytest.Bytes, echo, nil, `{"input":{"b64":"AP8="}}`, 200, octetStream, "\x00\xff", "Xebec-Default: false; Xebec-Confidence: 1; Xebec-Models: m@1"},
		{"numbers", querytest.Floats4, says(258), nil, `{"input":[1,2,3,4]}`, 200, octetStream, "\x02\x01\x00\x00\x00\x00\x00\x00", "Xebec-Default: false; Xebec-Confidence: 1; Xebec-Models: m@1"},
		{"a default of numbers", querytest.Floats4, fail, []func(*fixture){withDefault("-1")}, `{"input":[1,2,3,4]}`, 200, octetStream, "\xff\xff\xff\xff\xff\xff\xff\xff",
			"Xebec-Default: true; Xebec-Default-Explanation: " + api.ModelError.Reason() + "; Xebec-Confidence: 0"},
		{"a default of bytes", querytest.Bytes, fail, []func(*fixture){withDefault(`{"b64":"AAE="}`)}, `{"input":"x"}`, 200, octetStream, "\x00\x01",
			"Xebec-Default: true; Xebec-Default-Explanation: " + api.ModelError.Reason() + "; Xebec-Confidence: 0"},
		{"an error", querytest.Bytes, fail, nil, `{"input":"x"}`, 502, dialect.JSON, `{"error":"Query processing error"`, ""},
		{"a batch", querytest.Bytes, nil, nil, `{"input_batch":["x"]}`, 406, dialect.JSON, `{"error":"Query processing error","cause":"Accept: an answer in application/octet-stream is the output of one query, and this request has a batch: ask for application/json","code":"invalid_argument"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, c.sig, c.submit, c.change...)
			a, body := f.post("/f/predict", c.input, "Content-Type", "application/json", "Accept", octetStream)
			if a.Status != c.status || a.ContentType != c.kind || !strings.HasPrefix(body, c.body) || c.kind == octetStream && body != c.body {
				t.Errorf("%d %s %q, want %d %s %q", a.Status, a.ContentType, body, c.status, c.kind, c.body)
			}
			if got := fields(a); got != c.fields {
				t.Errorf("fields %s\nwant   %s", got, c.fields)
			}
		})
	}
}

// TestRawAnswersThatCannotBe: an output whose dimensions are open, and several outputs, are refused before any model is asked.
func TestRawAnswersThatCannotBe(t *testing.T) {
	for want, outputs := range map[string][]api.TensorSpec{
		"cannot show the dimensions of float32[-1]": {{Name: "y", DType: api.Float32, Shape: []int64{-1}}},
		"cannot show the dimensions of bytes[2]":    {{Name: "y", DType: api.Bytes, Shape: []int64{2}}},
		"is one output, and the model has 2":        {{Name: "y", DType: api.Float32}, {Name: "z", DType: api.Float32}},
	} {
		f := serve(t, api.Signature{Inputs: querytest.Bytes.Inputs, Outputs: outputs}, nil)
		if a, body := f.post("/f/predict", `{"input":"x"}`, "Accept", octetStream); a.Status != 406 || !strings.Contains(body, want) {
			t.Errorf("%d %s, want 406 and %s", a.Status, body, want)
		}
	}
}
