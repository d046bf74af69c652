package loadgen

import "testing"

func TestFailed(t *testing.T) {
	r := &Result{
		Status: map[int]uint64{200: 100, 503: 2, 504: 3}, Defaults: 5, Wrong: 7, Unanswered: 11, Dropped: 13, Errors: map[string]uint64{"reset": 17, "refused": 19},
	}
	if got := r.Failed(); got != 77 {
		t.Errorf("%d failures, expected 77", got)
	}
	if got := (&Result{Status: map[int]uint64{200: 100}}).Failed(); got != 0 {
		t.Errorf("%d failures of a clean run", got)
	}
}
