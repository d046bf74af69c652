package api

import (
	"strings"
	"testing"
)

func mediaSpec(in, out TensorSpec) error {
	m := ModelSpec{Name: "m", Inputs: []TensorSpec{in}, Outputs: []TensorSpec{out}, Run: RunSpec{Command: []string{"x"}}}
	return m.WithDefaults().Validate()
}

func TestMediaTypes(t *testing.T) {
	data := func(media string) TensorSpec { return TensorSpec{Name: "x", DType: Bytes, Media: media} }
	for _, ok := range []string{"", "image/png", "application/pdf", "audio/x-wav", "image/svg+xml", "application/vnd.ms-excel"} {
		if err := mediaSpec(data(ok), data(ok)); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	if err := mediaSpec(data("image/*"), data("")); err != nil {
		t.Errorf("image/* of an input: %v", err)
	}
	for media, want := range map[string]string{
		"image": "expected a media type in lower case", "image/": "lower case", "Image/png": "lower case", "image/png; q=1": "lower case",
		"image/png/x": "lower case", "/png": "lower case", "image/p*": "lower case", "chemical/x": "begins with one of", "multipart/mixed": "begins with one of",
		"*/*": "lower case", "application/json": "form of whole requests", "application/octet-stream": "form of whole requests",
		"application/*": "only an input may have a range", "image/" + strings.Repeat("x", 200): "has 206 bytes",
	} {
		if err := mediaSpec(data(media), data("")); err == nil || !strings.Contains(err.Error(), "inputs[0].media") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", media, err, want)
		}
	}
	if err := mediaSpec(data(""), data("image/*")); err == nil || !strings.Contains(err.Error(), "outputs[0].media") {
		t.Errorf("image/* of an output: %v", err)
	}
	for _, in := range []TensorSpec{{Name: "x", DType: Uint8, Shape: []int64{-1}, Media: "image/png"}, {Name: "x", DType: Bytes, Shape: []int64{2}, Media: "image/png"}} {
		if err := mediaSpec(in, data("")); err == nil || !strings.Contains(err.Error(), "cannot have a media type") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestHasMedia(t *testing.T) {
	for _, c := range []struct {
		media, kind string
		want        bool
	}{
		{"", "image/png", false}, {"", "", false}, {"image/png", "image/png", true}, {"image/png", "IMAGE/PNG", true}, {"image/png", "image/jpeg", false},
		{"image/png", "", false}, {"image/*", "image/jpeg", true}, {"image/*", "Image/Jpeg", true}, {"image/*", "image/", false}, {"image/*", "audio/x", false},
	} {
		spec := TensorSpec{Media: c.media}
		if got := spec.HasMedia([]byte(c.kind)); got != c.want {
			t.Errorf("%q has %q: %v", c.media, c.kind, got)
		}
	}
}

// TestModelsAgreeOnMedia: the models of a function have the same media types, and a version keeps its own.
func TestModelsAgreeOnMedia(t *testing.T) {
	model := func(name, in, out string) *ModelSpec {
		return &ModelSpec{Name: name, Version: "1", Inputs: []TensorSpec{{Name: "x", DType: Bytes, Media: in}}, Outputs: []TensorSpec{{Name: "y", DType: Bytes, Media: out}}}
	}
	f := FunctionSpec{Models: []string{"a", "b"}}
	a := model("a", "image/png", "image/png")
	if err := f.CheckCandidates([][]*ModelSpec{{a}, {model("b", "image/png", "image/png")}}); err != nil {
		t.Error(err)
	}
	for want, b := range map[string]*ModelSpec{
		`takes other inputs than a@1: x has media "image/jpeg", not "image/png"`: model("b", "image/jpeg", "image/png"),
		`has other outputs than a@1: y has media "", not "image/png"`:            model("b", "image/png", ""),
	} {
		if err := f.CheckCandidates([][]*ModelSpec{{a}, {b}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if a.Fixed(b) == "" || a.SameSignature(b) {
			t.Errorf("%s: the same signature", want)
		}
	}
}
