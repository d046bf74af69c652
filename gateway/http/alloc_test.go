//go:build !race

package http

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// wire is an exchange without Hertz and without a scheduler: a dialect parses the body and renders the answer, which is put together
// as it goes onto the wire.
type wire struct {
	s           *Server
	addressed   string
	body        []byte
	contentType []byte
	status      int
	keep        bool // copies of answers
	answer      []byte
}

func (w *wire) Param(name string) string {
	if name == "version" {
		return ""
	}
	return w.addressed
}

func (w *wire) HasQuery(string) bool { return false }

func (w *wire) Header(name string) []byte {
	if name == "Content-Type" {
		return w.contentType
	}
	return nil
}

func (w *wire) TakesParts() bool { return true }
func (w *wire) Body() []byte     { return w.body }

func (w *wire) Answer(a *dialect.Answer) {
	w.status, w.answer = a.Status, append(w.answer[:0], a.Body...)
}

func (w *wire) Submit(c *dialect.Call) {
	c.Identity.RequestID = appendRequestID(c.Identity.RequestID[:0])
	c.Submit(w, nil)
}

func (w *wire) Reply(c *dialect.Call) {
	a := &c.Answer
	a.Wire = w.s.appendAnswer(a.Wire[:0], c)
	if w.status = a.Status; w.keep {
		w.answer = append(w.answer[:0], a.Body...)
	}
}

// newWire makes a path with function "f" over models "m@1" …, of which a policy chooses if there are several.
func newWire(tb testing.TB, policy string, models int, keeps bool) (*wire, *query.Path) {
	clock := driver.NewClock()
	tb.Cleanup(clock.Close)
	start := time.Now()
	c := cache.New(1 << 20)
	p := query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, Cache: c, Timers: driver.NewTimers(clock)})
	fn := &query.Function{Name: "f", SLO: time.Second, Stats: new(obs.Endpoint), Learning: new(obs.Learning), Losses: make([]obs.Loss, models)}
	t := &query.Table{Functions: map[string]*query.Function{"f": fn}, Models: map[string]*query.Model{}}
	var refs []string
	for i := range models {
		refs = append(refs, string(rune('m'+i)))
		m := query.NewModel(api.ModelID{Name: refs[i], Version: "1"}, querytest.Floats4, querytest.Instant{}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		if keeps {
			m.Cache = c.Model()
			m.CapabilitiesKnown.Store(true)
			m.CacheOn.Store(true)
		}
		fn.Candidates = append(fn.Candidates, query.Candidate{Model: m})
		t.Models[refs[i]] = m
	}
	made, err := selection.New(policy, nil, refs)
	if err != nil {
		tb.Fatal(err)
	}
	fn.Selects, fn.Mode, fn.Selector = policy != "single", made.Mode(), learned.New(learned.Config{}).Declare("f", made, refs)
	p.Publish(t)
	w := &wire{s: new(Server), addressed: "f"}
	w.s.stampDate(start)
	return w, p
}

// serve is the function of a dialect's route.
func (w *wire) serve(tb testing.TB, p *query.Path, d dialect.Dialect, path string) func(dialect.Exchange) {
	for _, r := range d.Routes(p) {
		if r.Path == path {
			return r.Serve
		}
	}
	tb.Fatalf("no route %s", path)
	return nil
}

func (w *wire) want200(tb testing.TB) {
	if w.status != 200 {
		tb.Fatalf("answered %d %s", w.status, w.answer)
	}
}

func TestAllocsOfDialects(t *testing.T) {
	const predict, infer = "/{function}/predict", "/v2/models/{model}/infer"
	raw := make([]byte, 16)
	for _, c := range []struct {
		dialect           dialect.Dialect
		path, contentType string
		body              string
	}{
		{native.Dialect{}, predict, "", `{"input":[1,2,3,4.25]}`},
		{native.Dialect{}, predict, "", `{"input_batch":[[1,2,3,4],[5,6,7,8],[9,10,11,12]],"context":"ann","salt":7}`},
		{native.Dialect{}, predict, "application/octet-stream", string(raw)},
		{oip.Dialect{}, infer, "", `{"id":"7","inputs":[{"name":"input","datatype":"FP32","shape":[2,4],"data":[1,2,3,4,5,6,7,8]}]}`},
		{oip.Dialect{}, infer, "", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}],"outputs":[{"name":"output","parameters":{"binary_data":true}}]}`},
	} {
		w, p := newWire(t, "single", 1, false)
		if c.path == infer {
			w.addressed = "m"
		}
		w.body, w.contentType = []byte(c.body), []byte(c.contentType)
		serve := w.serve(t, p, c.dialect, c.path)
		serve(w)
		w.want200(t)
		if n := testing.AllocsPerRun(1000, func() { serve(w) }); n >= 1 {
			t.Errorf("%s: %.1f allocations a request, want none", c.body, n)
		}
	}
}

// TestAllocsOfSelecting: a query that selects, from the policy to the joined feedback, with and without a cache.
func TestAllocsOfSelecting(t *testing.T) {
	for _, policy := range []string{"exp3", "exp4", "thompson"} {
		for _, keeps := range []bool{false, true} {
			w, p := newWire(t, policy, 3, keeps)
			w.keep = true
			predict, feedback := w.serve(t, p, native.Dialect{}, "/{function}/predict"), w.serve(t, p, native.Dialect{}, "/{function}/feedback")
			body, text := []byte(`{"input":[1,2,3,4.25],"context":"ann"}`), []byte(nil)
			round := func() {
				w.body = body
				predict(w)
				id := w.answer[len(`{"query_id":`):]
				n := 0
				for id[n] != ',' {
					n++
				}
				text = append(append(append(text[:0], `{"query_id":`...), id[:n]...), `,"label":0,"context":"ann"}`...)
				w.body = text
				feedback(w)
				w.want200(t)
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

// header is the header of a request with these fields.
func header(fields ...string) *protocol.RequestHeader {
	h := new(protocol.RequestHeader)
	h.Set("Accept", "*/*")
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}

// clientHeaders are what clients send: nothing of ours, what a library sends, and everything.
var clientHeaders = map[string]*protocol.RequestHeader{
	"plain":   header(),
	"library": header("Accept-Encoding", "gzip, deflate", "Connection", "keep-alive"),
	"traced": header("Accept-Encoding", "gzip, deflate, br, zstd", "X-Request-Id", "5e9d0a0c-1b6c-4f5e-9a56-0c6f6f3a7f11",
		"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
}

// TestAllocsOfIdentity: to name a request takes no memory, whatever it sends.
func TestAllocsOfIdentity(t *testing.T) {
	for name, h := range clientHeaders {
		a, call := new(about), new(dialect.Call)
		once := func() {
			a.read(h)
			call.Identity.Set(&a.Identity)
		}
		once()
		if n := testing.AllocsPerRun(1000, once); n != 0 {
			t.Errorf("%s: %.1f allocations a request, want none", name, n)
		}
	}
}

func BenchmarkIdentity(b *testing.B) {
	for _, name := range []string{"plain", "library", "traced"} {
		b.Run(name, func(b *testing.B) {
			a, call := new(about), new(dialect.Call)
			b.ReportAllocs()
			for b.Loop() {
				a.read(clientHeaders[name])
				call.Identity.Set(&a.Identity)
			}
		})
	}
}

// BenchmarkQueryPath is a request without a connection and without a scheduler: parse, submit, answer, render.
func BenchmarkQueryPath(b *testing.B) {
	w, p := newWire(b, "single", 1, false)
	w.body = []byte(`{"input":[1,2,3,4.25]}`)
	serve := w.serve(b, p, native.Dialect{}, "/{function}/predict")
	b.ReportAllocs()
	for b.Loop() {
		serve(w)
	}
	w.want200(b)
}

func BenchmarkSelecting(b *testing.B) {
	for _, policy := range []string{"exp3", "exp4"} {
		for _, keeps := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/cache=%s", policy, strconv.FormatBool(keeps)), func(b *testing.B) {
				w, p := newWire(b, policy, 3, keeps)
				w.body = []byte(`{"input":[1,2,3,4.25]}`)
				serve := w.serve(b, p, native.Dialect{}, "/{function}/predict")
				b.ReportAllocs()
				for b.Loop() {
					serve(w)
				}
				w.want200(b)
			})
		}
	}
}
