//go:build !race

package query

import (
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
)

func TestAllocOfANamedVersion(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	c.load(map[string]func(*scheduler.Item){"a@3": says(7)})
	var o owner
	o.Init(c.p, &o)
	names := [][]byte{[]byte("a@3")}
	if n := testing.AllocsPerRun(100, func() {
		o.Open()
		if o.AskFunction("f") != nil || o.Restrict(names) != nil || o.outside == 0 {
			t.Fatal("the version is not found")
		}
		o.Drop()
	}); n != 0 {
		t.Errorf("a request that names a version allocates %v times", n)
	}
}
