package query

import (
	"errors"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// callOf continues a request to function "f", and returns the chains that it has then.
func callOf(t *testing.T, f *fixture, model, chains string) (string, error) {
	t.Helper()
	var r Request
	r.Init(f.p, &dropped{})
	r.Open()
	defer r.Drop()
	if err := r.AskFunction("f"); err != nil {
		t.Fatal(err)
	}
	o := &api.Origin{Call: api.Identity{Chain: []byte(chains)}}
	err := r.Continue(model, o)
	return string(o.Call.Chain), err
}

// dropped owns a request that is not submitted.
type dropped struct{}

func (dropped) Settled() api.Code { return api.OK }
func (dropped) Deliver()          {}
func (dropped) Released()         {}

// A call of a model that waits for it is an error that has the chain, and so is one that may ask that model, or shadow it.
func TestCyclesOfCalls(t *testing.T) {
	other := NewModel(api.ModelID{Name: "shadowed", Version: "1"}, floats4, &querytest.Lane{}, 0, new(obs.Endpoint))
	f := serve(t, floats4, querytest.Sum, func(f *fixture) {
		f.fn.Shadows = []Shadow{{Candidate: Candidate{Model: other}, Part: 0}}
	})
	for _, c := range []struct{ model, chains, extended, refused string }{
		{"a", "", "a", ""},
		{"c", "a b", "a b c", ""},
		{"c", "a b,d", "a b c,d c", ""},
		{"m", "", "", "m calls function f, which asks m: a model cannot wait for itself"},
		{"c", "a m b", "", "m calls b calls c calls function f, which asks m: a model cannot wait for itself"},
		{"c", "d,m", "", "m calls c calls function f, which asks m"},
		{"c", "shadowed", "", "shadowed calls c calls function f, which asks shadowed"},
		{"c", strings.Repeat("x", MaxChains), "", "in too many ways"},
	} {
		got, err := callOf(t, f, c.model, c.chains)
		if c.refused == "" {
			if err != nil || got != c.extended {
				t.Errorf("%s after %q: %q, %v", c.model, c.chains, got, err)
			}
			continue
		}
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.Cycle || !strings.Contains(e.Message, c.refused) || strings.Contains(e.Message, "a calls") {
			t.Errorf("%s after %q: %v, expected %s", c.model, c.chains, err, c.refused)
		}
	}
}

// A call ends with the query that it belongs to, if that is sooner than the function's objective or what the call asks for.
func TestDeadlineOfACall(t *testing.T) {
	seen := make(chan api.Nanos, 1)
	f := serve(t, floats4, func(it *scheduler.Item) { seen <- it.Deadline; querytest.End(it, api.OK, querytest.Int64(1)) })
	for _, c := range []struct {
		until api.Nanos
		cuts  bool
	}{{0, false}, {1000, true}, {api.Never, false}} {
		var r Request
		r.Init(f.p, &dropped{})
		r.Open()
		if err := r.AskFunction("f"); err != nil {
			t.Fatal(err)
		}
		if err := r.Continue("a", &api.Origin{Deadline: c.until}); err != nil {
			t.Fatal(err)
		}
		inputs, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		inputs[0].Data = make([]byte, 16)
		own := r.arrived + r.slo
		r.Submit()
		if got := <-seen; c.cuts && got != c.until || !c.cuts && got != own {
			t.Errorf("until %d: the deadline is %d, the function's own %d", c.until, got, own)
		}
		r.Delivered()
		r.Release()
	}
}
