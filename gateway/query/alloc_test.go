//go:build !race

package query

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// path is the query path without HTTP and without a scheduler: parse, submit, answer, render.
type path struct {
	g    *Path
	fn   *Function
	body []byte
	text []byte
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

func (p *path) predict(tb testing.TB) (id uint64) {
	cl := p.g.newCall()
	cl.arrived = p.g.cfg.Now()
	cl.fn, cl.model, cl.queue, cl.stats, cl.slo, cl.render = p.fn, p.fn.Candidates[0].Model, 0, p.fn.Stats, api.Nanos(p.fn.SLO), renderNative
	if err := cl.native.Parse(p.body, p.fn.Candidates[0].Model.Signature.Inputs, cl); err != nil {
		tb.Fatal(err)
	}
	if err := cl.options(nil); err != nil {
		tb.Fatal(err)
	}
	cl.submit(handlerRef)
	<-cl.done
	if len(cl.head()) == 0 || cl.status != 200 {
		tb.Fatalf("answered %d", cl.status)
	}
	id = cl.items[0].id
	cl.unrefHandler()
	return id
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

// TestAllocsOfSelecting: a query that selects, from the policy to the joined feedback, with and without a cache.
func TestAllocsOfSelecting(t *testing.T) {
	for _, policy := range []string{"exp3", "exp4", "thompson"} {
		for _, keeps := range []bool{false, true} {
			p := newPath(t, `{"input":[1,2,3,4.25],"context":"ann"}`)
			p.select3(t, policy, keeps)
			f := feedbackCalls.New().(*feedbackCall)
			round := func() {
				p.text = strconv.AppendUint(append(p.text[:0], `{"query_id":`...), p.predict(t), 10)
				p.text = append(p.text, `,"label":0,"context":"ann"}`...)
				if _, err := p.g.feed(p.fn, p.text, nil, f); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				round()
			}
			if n := testing.AllocsPerRun(1000, round); n >= 1 {
				t.Errorf("%s, cache %v: %.1f allocations a query with its feedback, want none", policy, keeps, n)
			}
		}
	}
}

// select3 gives the function two more models and a policy.
func (p *path) select3(tb testing.TB, policy string, keeps bool) {
	refs := []string{"a", "b", "c"}
	made, err := selection.New(policy, nil, refs)
	if err != nil {
		tb.Fatal(err)
	}
	table := learned.New(learned.Config{})
	clock := driver.NewClock()
	tb.Cleanup(clock.Close)
	p.g.cfg.Timers, p.g.cfg.Cache = driver.NewTimers(clock), cache.New(1<<20)
	p.g.joins = newJoins(64, &p.g.ids)
	p.fn.Candidates = nil
	for _, ref := range refs {
		m := NewModel(api.ModelID{Name: ref, Version: "1"}, floats4, instant{}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		if keeps {
			m.Cache = p.g.cfg.Cache.Model()
			m.Told.Store(true)
			m.CacheOn.Store(true)
		}
		p.fn.Candidates = append(p.fn.Candidates, Candidate{Model: m})
	}
	p.fn.Selects, p.fn.Mode, p.fn.Selector = true, made.Mode(), table.Declare("f", made, refs)
	p.fn.Learning, p.fn.Losses = new(obs.Learning), make([]obs.Loss, len(refs))
}

func BenchmarkSelecting(b *testing.B) {
	for _, policy := range []string{"exp3", "exp4"} {
		for _, keeps := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/cache=%v", policy, keeps), func(b *testing.B) {
				p := newPath(b, `{"input":[1,2,3,4.25]}`)
				p.select3(b, policy, keeps)
				b.ReportAllocs()
				for b.Loop() {
					p.predict(b)
				}
			})
		}
	}
}
