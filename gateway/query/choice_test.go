package query

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
)

// script is a Choice that says what it was told to, one after the other.
type script chan int

func (s script) Pick() int { return <-s }

func (s script) Refuse(queries int) { refusedQueries.Add(int64(queries)) }

// What the plan says of functions that select.
func (s script) Members() uint64            { panic("asked for members") }
func (s script) Arrived(int)                { panic("told of arrivals") }
func (s script) Limits([]float64) []float64 { panic("asked for limits") }
func (s script) Refusing() bool             { panic("asked whether to refuse") }
func (s script) Wish(int)                   { panic("told of a wish") }

// refusedQueries is what scripts were told.
var refusedQueries atomic.Int64

// TestPlannedCandidates: each request goes to the candidate that the plan has chosen, and one for which it has no place is
// refused without anybody being asked.
func TestPlannedCandidates(t *testing.T) {
	picks := make(script, 1)
	asked := make(chan int32, 16)
	answer := func(it *scheduler.Item) {
		asked <- it.Function
		it.Outputs = append(it.Outputs[:0], api.Value{Data: int64Bytes(7)})
		it.Owner.Answered(it, api.OK)
		it.Owner.Released(it, api.OK)
	}
	f := serve(t, floats4, answer, func(f *fixture) {
		second := NewModel(api.ModelID{Name: "small", Version: "2"}, floats4, f.lane, 0, new(obs.Endpoint))
		second.Ready.Store(1)
		f.fn.Candidates = append(f.fn.Candidates, Candidate{Model: second, Queue: 5})
		f.fn.Choice = picks
	})
	for _, c := range []struct {
		pick   int
		status int
		model  string // in the answer
		asked  int32  // sub-queue; -1: nobody
	}{{0, 200, "m@1", 1}, {1, 200, "small@2", 5}, {-1, 503, "", -1}, {2, 503, "", -1}, {0, 200, "m@1", 1}} {
		picks <- c.pick
		status, head, body := f.post("/f/predict", "application/json", `{"input":[1,2,3,4]}`)
		if status != c.status || !strings.Contains(body, c.model) {
			t.Errorf("candidate %d: answered %d %s, want %d by %q", c.pick, status, body, c.status, c.model)
		}
		if c.asked < 0 {
			if head.Get("Retry-After") == "" || !strings.Contains(body, api.Overloaded.String()) {
				t.Errorf("a refusal says %s and when to come again: %q", body, head.Get("Retry-After"))
			}
			if len(asked) > 0 {
				t.Error("a refused query was evaluated")
			}
		} else if q := <-asked; q != c.asked {
			t.Errorf("candidate %d: sub-queue %d was asked, want %d", c.pick, q, c.asked)
		}
	}
}

// TestCandidatesWithoutReplicas: whatever the plan says, a request goes to a candidate that has a replica if any has.
func TestCandidatesWithoutReplicas(t *testing.T) {
	first := NewModel(api.ModelID{Name: "a", Version: "1"}, floats4, nil, 0, new(obs.Endpoint))
	second := NewModel(api.ModelID{Name: "b", Version: "1"}, floats4, nil, 0, new(obs.Endpoint))
	f := &Function{Candidates: []Candidate{{Model: first}, {Model: second}}}
	for _, c := range []struct {
		first, second int32 // replicas
		want          *Model
	}{{1, 1, first}, {0, 1, second}, {0, 0, first}, {1, 0, first}} {
		first.Ready.Store(c.first)
		second.Ready.Store(c.second)
		if i, refused := f.pick(); f.Candidates[i].Model != c.want || refused {
			t.Errorf("with %d and %d replicas candidate %d is asked (refused: %v), want %s", c.first, c.second, i, refused, c.want.ID)
		}
	}
}

// TestRefusedByThePlan: with a default output a refused request is answered by it, every query of a batch, and a borrowed
// body is given back.
func TestRefusedByThePlan(t *testing.T) {
	picks := make(script, 1)
	f := serve(t, floats4, func(it *scheduler.Item) { t.Error("a refused query was evaluated") }, withDefault("-1"), func(f *fixture) { f.fn.Choice = picks })
	picks <- -1
	before := refusedQueries.Load()
	status, _, body := f.post("/f/predict", "application/json", `{"input_batch":[[1,2,3,4],[5,6,7,8]]}`)
	if n := refusedQueries.Load() - before; n != 2 {
		t.Errorf("%d queries were counted as refused, want 2", n)
	}
	var got struct {
		Predictions []struct {
			Output  int  `json:"output"`
			Default bool `json:"default"`
		} `json:"batch_predictions"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || len(got.Predictions) != 2 {
		t.Fatalf("answered %d %s (%v)", status, body, err)
	}
	for _, p := range got.Predictions {
		if !p.Default || p.Output != -1 {
			t.Errorf("%+v is not the default", p)
		}
	}
	bytes := serve(t, bytesEcho, func(it *scheduler.Item) { t.Error("a refused query was evaluated") }, func(f *fixture) { f.fn.Choice = picks })
	for range 3 {
		picks <- -1
		if status, _, body := bytes.post("/f/predict", "application/octet-stream", strings.Repeat("x", 4*borrowBytes)); status != http.StatusServiceUnavailable {
			t.Fatalf("answered %d %s", status, body)
		}
	}
}
