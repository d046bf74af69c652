package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/memory"
)

// goModels is a runtime and a transport whose replicas are Go functions, by the name of the model.
type goModels struct {
	models    map[string]memory.Model
	transport *memory.Transport

	mu      sync.Mutex
	workers []*goInstance // in the order of their launch
}

func (g *goModels) open(now func() api.Nanos) (worker.Transport, error) {
	g.transport = memory.New(memory.Config{Now: now})
	return g.transport, nil
}

func (g *goModels) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	m, ok := g.models[l.Model.Name]
	if !ok {
		return nil, fmt.Errorf("no Go function serves %s", l.Model)
	}
	g.mu.Lock() // before its start, for the worker may have answered a query before Start returns
	defer g.mu.Unlock()
	i := &goInstance{model: l.Model, Worker: g.transport.Start(l.Env, m)}
	g.workers = append(g.workers, i)
	return i, nil
}

func (g *goModels) Close() error { return nil }

// last is the worker that was launched last.
func (g *goModels) last() *goInstance {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.workers[len(g.workers)-1]
}

// goInstance is a worker as its supervisor has it.
type goInstance struct {
	model api.ModelID
	*memory.Worker
}

func (i *goInstance) PID() int                { return 0 }
func (i *goInstance) Exited() <-chan struct{} { return i.Ended() }

func (i *goInstance) Exit() containers.Exit {
	err := i.Wait()
	exit := containers.Exit{At: time.Now()}
	if coded := memory.Exit(0); errors.As(err, &coded) {
		exit.Code = coded.ExitCode()
	} else if err != nil {
		exit.Code, exit.Reason = -1, err.Error()
	}
	return exit
}

func (i *goInstance) Signal(term bool) error {
	if term {
		i.Stop()
	} else {
		i.Kill()
	}
	return nil
}

// onGoModels is a gateway that listens, over replicas that are Go functions.
func onGoModels(t *testing.T, models map[string]memory.Model) (s *Server, g *goModels, addr string) {
	t.Helper()
	g = &goModels{models: models}
	s, _ = listening(t, Config{Runtime: g, Transport: g.open})
	return s, g, s.Listen()
}

// number makes an output of a model of these tests: an int64.
func number(n int64) []api.Value {
	return []api.Value{{Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}}
}

// sum adds up each query's four numbers.
func sum(b *memory.Batch) error {
	for i, row := range b.Inputs {
		total := float32(0)
		for k := 0; k < len(row[0].Data); k += 4 {
			total += math.Float32frombits(binary.LittleEndian.Uint32(row[0].Data[k:]))
		}
		if total < 0 {
			return errors.New("the sum is negative")
		}
		b.Outputs[i] = number(int64(total))
	}
	return nil
}

const patient = `
---
kind: Function
name: f
models: [m]
slo: 60s
cold_start: 15s
`

// answer posts a prediction and reads its output.
func answer(t *testing.T, addr, body string, headers ...string) (output int64, query json.Number) {
	t.Helper()
	status, text := post(t, addr, "/f/predict", body, headers...)
	var a struct {
		Output  int64       `json:"output"`
		QueryID json.Number `json:"query_id"`
	}
	if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil {
		t.Fatalf("predict %s: %d %s", body, status, text)
	}
	return a.Output, a.QueryID
}

// Predictions go over HTTP through the whole gateway to a Go function and back, alone and many at a time.
func TestPredictionsOverATransportInMemory(t *testing.T) {
	s, _, addr := onGoModels(t, map[string]memory.Model{"m": {Predict: sum}})
	mustApply(t, s, model+patient)
	until(t, "1 serves", serves(s, "1"))
	if got, _ := answer(t, addr, `{"input":[1,2,3,4]}`); got != 10 {
		t.Errorf("output %d, expected 10", got)
	}
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for k := range 25 {
				if got, _ := answer(t, addr, fmt.Sprintf(`{"input":[%d,%d,0,1]}`, c, k)); got != int64(c+k+1) {
					t.Errorf("client %d, query %d: %d", c, k, got)
				}
			}
		})
	}
	clients.Wait()
	if status, text := post(t, addr, "/f/predict", `{"input":[-1,0,0,0]}`); status != 502 {
		t.Errorf("%d %s: expected 502 for an error of the model", status, text)
	}
	statuses, err := s.Models(t.Context(), "m")
	if err != nil || len(statuses) != 1 || len(statuses[0].Replicas) != 1 {
		t.Fatalf("%+v, %v", statuses, err)
	}
	if r := statuses[0].Replicas[0]; r.Ring || r.PID != 0 || r.Binding != "xebec-memory/1" || r.Queries != 202 || !strings.Contains(r.LastError, "the sum is negative") {
		t.Errorf("%+v", r)
	}
}

// A worker that exits on a query that it has alone is replaced, and the query is lost. A worker that asks to leave is drained.
func TestLossOfReplicasOverATransportInMemory(t *testing.T) {
	var mu sync.Mutex
	dies := true
	s, g, addr := onGoModels(t, map[string]memory.Model{"m": {Predict: func(b *memory.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		if dies {
			dies = false
			return memory.Exit(3)
		}
		return sum(b)
	}}})
	mustApply(t, s, model+patient)
	until(t, "1 serves", serves(s, "1"))
	if status, text := post(t, addr, "/f/predict", `{"input":[1,2,3,4]}`); status != 502 || !strings.Contains(text, "replica_lost") {
		t.Errorf("%d %s: expected 502 replica_lost", status, text)
	}
	if got, _ := answer(t, addr, `{"input":[4,3,2,1]}`); got != 10 { // another input: the same could still join the one that is being lost
		t.Errorf("output %d, expected 10 of the worker that replaced the dead one", got)
	}
	first := g.last()
	first.Stop()
	<-first.Ended()
	if err := first.Wait(); err != nil {
		t.Errorf("a worker that asked to leave ended with %v", err)
	}
	if got, _ := answer(t, addr, `{"input":[1,1,1,1]}`); got != 4 || g.last() == first {
		t.Errorf("output %d, expected 4 of another worker", got)
	}
}

// A model that learns gets labels, reports its accuracy, and sees contexts.
func TestLabelsOverATransportInMemory(t *testing.T) {
	taught := make(chan string, 1)
	s, _, addr := onGoModels(t, map[string]memory.Model{"m": {
		Contexts: true,
		Predict: func(b *memory.Batch) error {
			for i := range b.Inputs {
				b.Outputs[i] = number(int64(len(b.Contexts[i])))
			}
			return nil
		},
		Feedback: func(b *memory.Batch) error {
			taught <- fmt.Sprintf("%s %s", b.Contexts[0], slices.Concat(b.Labels...))
			return nil
		},
		Accuracy: func() (float64, error) { return 0.75, nil },
	}})
	mustApply(t, s, model+patient)
	until(t, "1 serves", serves(s, "1"))
	got, query := answer(t, addr, `{"input":[1,2,3,4]}`, "Xebec-Context: ann")
	if got != 3 {
		t.Errorf("output %d, expected the length of the context", got)
	}
	if status, text := post(t, addr, "/f/feedback", fmt.Sprintf(`{"query_id":%s,"label":7}`, query)); status != 200 {
		t.Fatalf("feedback: %d %s", status, text)
	}
	if got := <-taught; got != "ann 7" {
		t.Errorf("the model was taught %q", got)
	}
	if accuracy := deployed(s, "m", "1").Accuracy(t.Context()); accuracy == nil || *accuracy != 0.75 {
		t.Errorf("accuracy %v, expected 0.75", accuracy)
	}
}
