package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestLessonsWaitBounded: labels for a model that has no replica wait, in memory of their own, and when there are too many the oldest
// give way.
func TestLessonsWaitBounded(t *testing.T) {
	d := &deployment{}
	input, context, label := []byte("input 0000"), []byte("user 0000"), []byte(`"label 0000"`)
	for i := range maxLessons + 10 {
		for _, b := range [][]byte{input, context, label} {
			text := []byte(fmt.Sprintf("%04d", i))
			copy(b[strings.IndexByte(string(b), ' ')+1:], text) // the caller's memory is used again
		}
		d.teach([]api.Value{{Data: input, Dims: []int64{1}}}, context, label)
	}
	l := &d.lessons
	if len(l.queries) != maxLessons || len(l.labels) != maxLessons || l.busy != 0 {
		t.Fatalf("%d queries and %d labels wait, %d replicas are at it: expected %d, %d and none", len(l.queries), len(l.labels), l.busy, maxLessons, maxLessons)
	}
	for i, q := range l.queries {
		n := fmt.Sprintf("%04d", i+10)
		if string(q.Inputs[0].Data) != "input "+n || string(q.Context) != "user "+n || string(l.labels[i]) != `"label `+n+`"` || q.Inputs[0].Dims[0] != 1 {
			t.Fatalf("place %d has %s, %s, %s: expected those of %s", i, q.Inputs[0].Data, q.Context, l.labels[i], n)
		}
	}
}
