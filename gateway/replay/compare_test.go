package replay

import (
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func TestSameOutput(t *testing.T) {
	one := func(d api.DType, shape ...int64) []api.TensorSpec {
		return []api.TensorSpec{{Name: "y", DType: d, Shape: shape}}
	}
	two := []api.TensorSpec{{Name: "a", DType: api.Float64}, {Name: "b", DType: api.Int64}}
	for _, c := range []struct {
		specs []api.TensorSpec
		a, b  string
		want  bool
	}{
		{one(api.Float32), "1", "1.0000001", true},
		{one(api.Float32), "1", "1.0001", false},
		{one(api.Float32), "1000000", "1000000.5", true}, // relative
		{one(api.Float32), "0", "1e-7", true},            // absolute
		{one(api.Float32), "null", "null", true},
		{one(api.Float32), "null", "0", false},
		{one(api.Float32, 2), "[1,2]", "[1, 2.0]", true},
		{one(api.Float32, 2), "[1,2]", "[1]", false},
		{one(api.Float32, 2), "[1,2]", "1", false},
		{one(api.Float32, 2), "1", "[1,2]", false},
		{one(api.Int64), "1000000", "1000001", false},
		{one(api.Int64), "9007199254740993", "9007199254740992", false},
		{one(api.Int64), "7", "7.0", true},
		{one(api.Int64), "7", `"7"`, false},
		{one(api.Bytes), `{"b64":"YQ=="}`, `{"b64": "YQ\u003d="}`, true},
		{one(api.Bytes), `{"b64":"YQ=="}`, `{"b64":"Yg=="}`, false},
		{one(api.Bytes), `{"b64":"YQ=="}`, `"YQ=="`, false},
		{one(api.Bytes, 2), `[{"b64":"YQ=="},{"b64":""}]`, `[{"b64":"YQ=="}, {"b64":""}]`, true},
		{one(api.Bytes), `{"b64":7}`, `{ "b64":7}`, false},
		{one(api.Bool), "true", "false", false},
		{one(api.Bool), "true", "{}", false},
		{one(api.Bool), "true", "tru", false},
		{two, `{"a":1,"b":2}`, `{"b":2,"a":1.0000001}`, true},
		{two, `{"a":1,"b":2}`, `{"a":1,"b":2.0000001}`, false},
		{two, `{"a":1,"b":2}`, `{"a":1}`, false},
		{two, `{"a":1,"b":2}`, `{"a":1,"c":2}`, false},
		{two, `{"a":1,"b":2}`, `[1,2]`, false},
	} {
		if got := sameOutput(c.specs, []byte(c.a), []byte(c.b), 1e-6); got != c.want {
			t.Errorf("%v: %s and %s are the same: %v, want %v", c.specs, c.a, c.b, got, c.want)
		}
	}
	for label, want := range map[string]bool{`{"b":2}`: true, `{"a":1,"b":2}`: true, `{"b":3}`: false, `{"a":2,"b":2}`: false, `{"c":2}`: false, `{}`: false, `2`: false} {
		if got := isLabel(two, []byte(label), []byte(`{"a":1,"b":2}`), 1e-6); got != want {
			t.Errorf("the label %s is what was said: %v, want %v", label, got, want)
		}
	}
}

func TestLatencies(t *testing.T) {
	for v := int64(0); v < 1<<40; v = v*9/8 + 1 {
		var l latencies
		l.add(v)
		if got := l.quantileMillis(0.5) * 1e3; math.Abs(got-float64(v)) > 0.0625*float64(v) {
			t.Errorf("the median of %d µs is %v", v, got)
		}
	}
	var l latencies
	if got := l.quantileMillis(0.99); got != 0 {
		t.Errorf("the P99 of no latencies is %v, want 0", got)
	}
	for i := range int64(1000) {
		l.add(i * 1000)
	}
	if p := l.quantileMillis(0.99); math.Abs(p-990) > 62 {
		t.Errorf("the P99 of 0 to 999 ms is %v", p)
	}
	l.add(-5)
	l.add(math.MaxInt64)
}
