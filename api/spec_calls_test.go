package api

import (
	"fmt"
	"strings"
	"testing"
)

func TestCallsOfAModel(t *testing.T) {
	many := make([]string, MaxCalls+1)
	for i := range many {
		many[i] = fmt.Sprint("f", i)
	}
	for _, c := range []struct {
		calls []string
		want  string
	}{
		{nil, ""}, {many[1:], ""},
		{many, "calls: has 33 names: expected at most 32"},
		{[]string{"f", "f"}, `calls[1]: "f" is there twice`},
		{[]string{"f", "m@1"}, "calls[1]: "},
		{[]string{""}, "calls[0]: "},
	} {
		spec := ModelSpec{Name: "m", Inputs: []TensorSpec{{Name: "x", DType: Bytes}}, Outputs: []TensorSpec{{Name: "y", DType: Bytes}}, Run: RunSpec{Command: []string{"m"}}, Calls: c.calls}.WithDefaults()
		err := spec.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, expected %q", c.calls, err, c.want)
		}
		if want := map[bool]string{true: CacheOn, false: CacheOff}[len(c.calls) == 0]; spec.Cache != want {
			t.Errorf("%v: the cache is %s, expected %s", c.calls, spec.Cache, want)
		}
		other := spec
		if other.Calls = []string{"else"}; spec.Fixed(&other) != "calls" {
			t.Errorf("a version may call others than before: %q", spec.Fixed(&other))
		}
	}
}

func TestJoinChains(t *testing.T) {
	for _, c := range [][3]string{
		{"", "", ""}, {"a b", "", "a b"}, {"", "a b", "a b"}, {"a b", "a b", "a b"}, {"a", "b", "a,b"}, {"a,b", "b,c d", "a,b,c d"}, {"a b", "a", "a b,a"},
	} {
		if got := JoinChains([]byte(c[0]), []byte(c[1])); string(got) != c[2] {
			t.Errorf("%q and %q: %q, expected %q", c[0], c[1], got, c[2])
		}
	}
}
