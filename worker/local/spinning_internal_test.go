package local

import "testing"

func TestFewSpinAtOnce(t *testing.T) {
	s := spinning{most: 2}
	for range 2 {
		if !s.begin() {
			t.Fatal("two may not spin")
		}
	}
	if s.begin() {
		t.Fatal("a third one may spin")
	}
	s.end(true)
	if !s.begin() {
		t.Error("the third one may not spin after another one has ended")
	}
	s.end(false)
	if found, vain := s.found.Load(), s.vain.Load(); found != 1 || vain != 1 {
		t.Errorf("%d found and %d in vain, expected 1 and 1", found, vain)
	}
}
