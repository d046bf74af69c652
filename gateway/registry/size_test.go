package registry

import (
	"strconv"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// declaredModel returns a model with n versions, one of which serves.
func declaredModel(n int) *Model {
	m := &Model{Traffic: &api.TrafficSpec{Model: "digits"}, Default: api.VersionPolicy{Latest: 1}, Serving: strconv.Itoa(n)}
	for i := 1; i <= n; i++ {
		m.Versions = append(m.Versions, Version{Name: strconv.Itoa(i)})
	}
	m.Versions[n-1].State = Available
	return m
}

// TestManyVersions: a model with ten thousand versions needs no more steps than one with two.
func TestManyVersions(t *testing.T) {
	m := declaredModel(10_000)
	if a := Next(m); len(a) > 0 || Serving(m) != "10000" || len(Aspired(m)) != 1 {
		t.Errorf("steps %v, serving %s, aspired %v", a, Serving(m), Aspired(m))
	}
	m.Versions = append(m.Versions, Version{Name: "10001"})
	if a := Next(m); len(a) != 1 || a[0] != (Action{"10001", Load}) {
		t.Errorf("steps %v", a)
	}
}

// BenchmarkNext measures one change of a model.
func BenchmarkNext(b *testing.B) {
	for _, n := range []int{2, 10_000} {
		m := declaredModel(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				if Next(m) != nil {
					b.Fatal("Next returned a step")
				}
			}
		})
	}
}
