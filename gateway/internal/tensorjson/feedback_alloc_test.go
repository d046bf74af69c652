//go:build !race

package tensorjson

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Parsing feedback and its labels allocates nothing once the buffers have grown.
func TestFeedbackAlloc(t *testing.T) {
	body := []byte(`{"feedback_batch":[{"query_id":123456789,"label":[1,2,3],"context":"user 7"},{"query_id":5,"correct":true},{"input":[1,2],"loss":0.5,"uid":77}]}`)
	var f Feedback
	s := &store{width: 1, limit: 1}
	inputs, outputs, label := spec(api.Float32, 2), spec(api.Float64, -1), make([]api.Value, 1)
	run := func() {
		s.n = 0
		if err := f.Parse(body, inputs, s, 8); err != nil {
			t.Fatal(err)
		}
		if err := f.ParseLabel(0, outputs, -1, label); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
