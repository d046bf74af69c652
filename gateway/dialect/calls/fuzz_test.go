package calls_test

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/calls"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// exchange is a request of a line, without a connection.
type exchange struct {
	from    replica
	header  map[string]string
	body    []byte
	answers int
	status  int
}

func (x *exchange) Param(string) string       { return "f" }
func (x *exchange) HasQuery(string) bool      { return false }
func (x *exchange) Body() []byte              { return x.body }
func (x *exchange) TakesParts() bool          { return false }
func (x *exchange) Caller() dialect.Caller    { return &x.from }
func (x *exchange) Identify(id *api.Identity) { _ = string(id.RequestID) }

func (x *exchange) Header(name string) []byte {
	if v, ok := x.header[name]; ok {
		return []byte(v)
	}
	return nil
}

func (x *exchange) Answer(a *dialect.Answer) { x.answers, x.status = x.answers+1, a.Status }

func (x *exchange) Submit(c *dialect.Call) { c.Submit(x, nil) }

func (x *exchange) Reply(c *dialect.Call) { x.Answer(&c.Answer) }

// Whatever a worker sends, there is one answer, and no request stays open.
func FuzzCall(f *testing.F) {
	sig := api.Signature{
		Inputs:  []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{-1}}, {Name: "t", DType: api.String, Shape: []int64{2}}},
		Outputs: []api.TensorSpec{{Name: "y", DType: api.Bytes}},
	}
	p := query.New(query.Config{Now: func() api.Nanos { return 1 }, MaxBatch: 8})
	m := query.NewModel(api.ModelID{Name: "m", Version: "1"}, sig, &querytest.Lane{Submit: func(it *scheduler.Item) {
		querytest.End(it, api.OK, it.Inputs[0].Data)
	}}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	p.Publish(&query.Table{Functions: map[string]*query.Function{"f": {Name: "f", SLO: 1e9, Candidates: []query.Candidate{{Model: m, Queue: 1}}, Stats: new(obs.Endpoint)}}})
	routes := calls.Dialect{}.Routes(p)
	digest := ""
	x := &exchange{}
	routes[1].Serve(answered(x, func(a *dialect.Answer) { digest = strings.Split(string(a.Body), `"`)[3] }))
	f.Add([]byte{}, "1", digest, "7.0", "{}", "")
	f.Add(make([]byte, 256), "2", digest, "7", "", "a b")
	f.Add(make([]byte, 64), "1", "0", "x", "[", "m")
	f.Fuzz(func(t *testing.T, body []byte, queries, of, what, parameters, chain string) {
		x := &exchange{body: body, header: map[string]string{"Xebec-Queries": queries, "Xebec-Signature": of, "Xebec-For": what, "Xebec-Parameters": parameters}}
		x.from.origin.Store(&api.Origin{Call: api.Identity{Chain: []byte(chain)}})
		routes[0].Serve(x)
		if x.answers != 1 || x.status < 200 || x.status > 599 {
			t.Errorf("%d answers, the last one %d", x.answers, x.status)
		}
		if n := p.Open(); n != 0 {
			t.Errorf("%d requests are open", n)
		}
	})
}

// answered is an exchange whose answer goes to f.
func answered(x *exchange, f func(a *dialect.Answer)) dialect.Exchange { return &told{x, f} }

type told struct {
	*exchange
	f func(a *dialect.Answer)
}

func (t *told) Answer(a *dialect.Answer) { t.f(a) }
