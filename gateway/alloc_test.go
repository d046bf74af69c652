//go:build !race

package gateway

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
)

// path is the query path without HTTP and without a scheduler: parse, submit, answer, render.
type path struct {
	g    *Gateway
	fn   *Function
	body []byte
}

// instant answers every query with 0 at once, from the transport's point of view as well: outputs are written into the item's
// own buffers.
type instant struct{}

func (instant) Cancel(*scheduler.Item) {}

func (instant) SubmitAll(items []*scheduler.Item) {
	for _, it := range items {
		answer0(it)
	}
}

func answer0(it *scheduler.Item) {
	if cap(it.Outputs) == 0 {
		it.Outputs = make([]api.Value, 1)
	}
	it.Outputs = it.Outputs[:1]
	it.Outputs[0].Data = append(it.Outputs[0].Data[:0], 0, 0, 0, 0, 0, 0, 0, 0)
	it.Confidence = 0.5
	it.Owner.Answered(it, api.OK)
	it.Owner.Released(it, api.OK)
}

func newPath(tb testing.TB, body string) *path {
	start := time.Now()
	g := New(Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, Ready: func() (bool, string) { return true, "" }})
	tb.Cleanup(g.Close)
	m := NewModel(api.ModelID{Name: "m", Version: "1"}, floats4, instant{}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	return &path{g: g, fn: &Function{Name: "f", SLO: time.Second, Candidates: []Candidate{{Model: m}}, Stats: new(obs.Endpoint)}, body: []byte(body)}
}

func (p *path) predict(tb testing.TB) {
	cl := p.g.newCall()
	cl.arrived = p.g.cfg.Now()
	cl.fn, cl.model, cl.queue, cl.stats, cl.slo, cl.render = p.fn, p.fn.Candidates[0].Model, 0, p.fn.Stats, api.Nanos(p.fn.SLO), renderNative
	if err := cl.native.Parse(p.body, p.fn.Candidates[0].Model.Signature.Inputs, cl); err != nil {
		tb.Fatal(err)
	}
	cl.submit(handlerRef)
	<-cl.done
	if len(cl.head()) == 0 || cl.status != 200 {
		tb.Fatalf("answered %d", cl.status)
	}
	cl.unrefHandler()
}

func TestAllocsOfTheQueryPath(t *testing.T) {
	for _, body := range []string{`{"input":[1,2,3,4.25]}`, `{"input_batch":[[1,2,3,4],[5,6,7,8],[9,10,11,12]]}`} {
		p := newPath(t, body)
		p.predict(t)
		if n := testing.AllocsPerRun(1000, func() { p.predict(t) }); n >= 1 {
			t.Errorf("%s: %.1f allocations a request, want 0", body, n)
		}
	}
}

func BenchmarkQueryPath(b *testing.B) {
	p := newPath(b, `{"input":[1,2,3,4.25]}`)
	b.ReportAllocs()
	for b.Loop() {
		p.predict(b)
	}
}
