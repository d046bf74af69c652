//go:build !race

package oip

import (
	"testing"

	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// TestFunctionsAllocateNothing: as predict does not.
func TestFunctionsAllocateNothing(t *testing.T) {
	f := serveFunctions(t, querytest.Sum)
	c := (&service{dialect: Dialect{}, path: f.path}).newCall()
	body := []byte(`{"parameters":{"context":"ann","t":1},"inputs":[` + twoRows + `]}`)
	run := func() {
		c.parsed.Function = true
		c.Open()
		if err := c.AskNamed("f", ""); err != nil {
			t.Fatal(err)
		}
		if err := c.parsed.Parse(body, WholeBody, &c.Model().Signature, c, 8); err != nil {
			t.Fatal(err)
		}
		if err := c.parsed.Options.Apply(&c.Request); err != nil {
			t.Fatal(err)
		}
		c.Drop()
	}
	c.service.calls.New = func() any { return c }
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
