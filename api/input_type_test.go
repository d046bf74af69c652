package api

import (
	"strings"
	"testing"
)

// A function with an input type refuses models with other inputs, and says what would be right.
func TestInputTypes(t *testing.T) {
	for _, c := range []struct {
		takes string
		dtype DType
		wrong string
	}{
		{"floats", Float32, ""}, {"doubles", Float64, ""}, {"integers", Int32, ""}, {"integers", Uint8, ""}, {"bytes", Bytes, ""}, {"strings", String, ""}, {"", Bool, ""},
		{"doubles", Float32, "model digits-svm@1 does not take one input of type doubles: expected floats, or no input_type"},
		{"floats", Bool, "expected no input_type, since inputs of type bool have no such name"},
	} {
		f, m := validFunction().WithDefaults(), validModel().WithDefaults()
		f.InputType, m.Inputs[0].DType = c.takes, c.dtype
		err := f.CheckModel(&m)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q and %s: got %v, want %q", c.takes, c.dtype, err, c.wrong)
		}
	}
	if got := InputTypeOf(append(validModel().Inputs, validModel().Inputs...)); got != "" {
		t.Errorf("two inputs have the type %q", got)
	}
}
