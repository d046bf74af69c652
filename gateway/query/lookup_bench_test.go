package query

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// lookupTable has as many models, each with two versions and a function, as a large installation; serving is which version answers.
func lookupTable(models, serving int) *Table {
	t := &Table{Functions: map[string]*Function{}, Models: map[string]*Model{}, Versions: map[api.ModelID]*Model{}}
	for i := range models {
		name := fmt.Sprintf("model-%d", i)
		var versions [2]*Model
		for v := range versions {
			id := api.ModelID{Name: name, Version: fmt.Sprint(v + 1)}
			versions[v] = NewModel(id, floats4, nil, 0, new(obs.Endpoint))
			versions[v].Ready.Store(1)
			t.Versions[id] = versions[v]
		}
		t.Models[name] = versions[serving]
		t.Functions[name] = &Function{Name: name, Stats: new(obs.Endpoint), Candidates: []Candidate{{Model: versions[serving]}}}
	}
	return t
}

// BenchmarkLookup is what a request does to find the version that serves it, from entering the readers until it leaves them: while the table
// stays, and while another goroutine publishes tables in which other versions serve, without a pause.
func BenchmarkLookup(b *testing.B) {
	for _, changing := range []bool{false, true} {
		for _, models := range []int{10, 10_000} {
			name := fmt.Sprintf("models=%d/quiet", models)
			if changing {
				name = fmt.Sprintf("models=%d/changing", models)
			}
			b.Run(name, func(b *testing.B) {
				p := New(Config{Now: func() api.Nanos { return 0 }})
				tables := [2]*Table{lookupTable(models, 0), lookupTable(models, 1)}
				p.Publish(tables[0])
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					for i := 1; changing; i++ {
						select {
						case <-stop:
							return
						default:
							p.Publish(tables[i%2])
						}
					}
				}()
				names := make([]string, 64)
				for i := range names {
					names[i] = fmt.Sprintf("model-%d", i*(models-1)/len(names))
				}
				var last *Model
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					i++
					turn := p.readers.enter()
					fn := p.table.Load().Functions[names[i%len(names)]]
					candidate, _ := fn.pick()
					last = fn.Candidates[candidate].Model
					p.readers.leave(turn)
				}
				close(stop)
				<-stopped
				runtime.KeepAlive(last)
			})
		}
	}
}
