package driver

import (
	"math"
	"testing"
)

func TestTimesBySize(t *testing.T) {
	var s sizeTimes
	if s.list() != nil {
		t.Error("times without a batch")
	}
	for range 10 {
		s.observe(1, 1000)
		s.observe(2, 2000)
		s.observe(3, 4000)
	}
	s.observe(1<<20, 7)
	got := s.list()
	if len(got) != 3 || got[0] != (SizeTime{1, 1, 10, 1000}) || got[1].From != 2 || got[1].To != 3 || got[1].Batches != 20 || math.Abs(got[1].MeanNanos-3000) > 1e-6 || got[2].From != 1<<16 || got[2].MeanNanos != 7 {
		t.Errorf("times by size %+v", got)
	}
	for range 10 * sizeMemory { // the model has become slower
		s.observe(1, 5000)
	}
	if got := s.list()[0]; got.Batches != 10+10*sizeMemory || math.Abs(got.MeanNanos-5000) > 1 {
		t.Errorf("a model that has become slower: %+v", got)
	}
	if n := testing.AllocsPerRun(100, func() { s.observe(5, 10) }); n != 0 {
		t.Errorf("a batch allocates %v", n)
	}
}
