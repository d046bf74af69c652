package declarations

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/functions"
)

// This file judges which models may call which. A cycle of declared calls is refused, although no query may ever run through all of it: two
// models that call each other can wait for each other's replicas while they evaluate queries of different clients, and no chain of one query
// would show it. Without a cycle that cannot happen. A callee that is not declared yet is no error, so models come in any order: the
// declaration that would close the cycle is the one that is refused.

// graph is which functions and models are called, and which models functions ask.
type graph struct {
	calls map[string][]string // of all versions of a model, by its name; models that call nothing are not there
	asks  map[string][]string // models of a function
}

// graphOf has what is declared, and instead of functions that are there those of put.
func (d *Declarations) graphOf(models map[string][]*api.ModelSpec, put []api.FunctionSpec) *graph {
	g := &graph{calls: map[string][]string{}}
	for name, versions := range models {
		for _, m := range versions {
			if len(m.Calls) > 0 {
				g.calls[name] = append(g.calls[name], m.Calls...)
			}
		}
	}
	if len(g.calls) == 0 {
		return g
	}
	g.asks = map[string][]string{}
	add := func(f *api.FunctionSpec) {
		g.asks[f.Name] = nil
		for _, ref := range f.Refs() {
			model, _, _ := strings.Cut(ref, "@")
			g.asks[f.Name] = append(g.asks[f.Name], model)
		}
	}
	d.cfg.Functions.Each(func(_ string, f functions.Declared) { add(f.Spec) })
	for i := range put {
		add(&put[i])
	}
	return g
}

// step is one model of a path through the graph, and what it is reached by.
type step struct {
	callee string // the function or model that is called
	model  string // that it asks
}

// cycle returns a path from a model to itself, which begins with the model and ends with it; nil: there is none.
func (g *graph) cycle() []step {
	names := make([]string, 0, len(g.calls))
	for name := range g.calls {
		names = append(names, name)
	}
	slices.Sort(names) // the message is the same each time
	done := map[string]bool{}
	for _, name := range names {
		if found := g.search([]step{{model: name}}, done); found != nil {
			return found
		}
	}
	return nil
}

// search follows the last step of the path. Models in done lead to no cycle.
func (g *graph) search(path []step, done map[string]bool) []step {
	last := path[len(path)-1].model
	if done[last] {
		return nil
	}
	if at := slices.IndexFunc(path, func(s step) bool { return s.model == last }); at < len(path)-1 {
		return path[at:]
	}
	for _, callee := range g.calls[last] {
		models, function := g.asks[callee]
		if !function {
			models = []string{callee}
		}
		for _, model := range models {
			if found := g.search(append(path[:len(path):len(path)], step{callee, model}), done); found != nil {
				return found
			}
		}
	}
	done[last] = true
	return nil
}

// text is the cycle in words.
func text(cycle []step) string {
	var b strings.Builder
	b.WriteString(cycle[0].model)
	for _, s := range cycle[1:] {
		if b.WriteString(" calls " + s.callee); s.callee != s.model {
			fmt.Fprintf(&b, " (which asks %s)", s.model)
		}
	}
	return b.String()
}

// checkCalls returns the cycle that would be there and is not there yet, as words, and the path.
func (d *Declarations) checkCalls(before, after map[string][]*api.ModelSpec, put []api.FunctionSpec) (cycle []step, err error) {
	if cycle = d.graphOf(after, put).cycle(); cycle == nil || d.graphOf(before, nil).cycle() != nil {
		return nil, nil
	}
	return cycle, api.FieldErrors{{Path: "calls", Message: text(cycle) + ": models that wait for each other cannot answer; take one of these calls away"}}
}

// judgeCalls refuses a set that would close a cycle of calls, and names an object of the set that is a part of it.
func (d *Declarations) judgeCalls(set *manifest.Set, before, after map[string][]*api.ModelSpec) error {
	cycle, err := d.checkCalls(before, after, set.Functions)
	if err == nil {
		return nil
	}
	for i := range set.Models {
		if m := &set.Models[i]; len(m.Calls) > 0 && slices.ContainsFunc(cycle, func(s step) bool { return s.model == m.Name }) {
			return refuse(set, api.KindModel, i, api.InvalidArgument, err)
		}
	}
	for i := range set.Functions {
		if slices.ContainsFunc(cycle, func(s step) bool { return s.callee == set.Functions[i].Name }) {
			return refuse(set, api.KindFunction, i, api.InvalidArgument, api.FieldErrors{{Path: "models", Message: err.Error()}})
		}
	}
	return api.Errorf(api.InvalidArgument, "%w", err)
}
