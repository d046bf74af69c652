package server

import (
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// publishRulesLocked puts a family's labels and rules into a table, for requests that address the model.
func (s *Server) publishRulesLocked(t *query.Table, f *family) {
	if f.traffic == nil {
		return
	}
	for label, v := range f.traffic.Labels {
		if d := f.versions[v]; d != nil && f.versions[label] == nil {
			t.Versions[api.ModelID{Name: f.name, Version: label}] = d.model
		}
	}
	if r := f.rules.live; r != nil {
		d := f.versions[r.other]
		t.Routes[f.name] = &query.Route{Rule: r.rule, Model: d.model, Queue: d.model.Direct}
	}
	if r := f.rules.tee; r != nil {
		d := f.versions[r.other]
		t.Tees[f.name] = []query.Tee{{Candidate: query.Candidate{Model: d.model, Queue: d.model.Direct}, Part: r.part, Seen: r.seen}}
	}
}

// ruledLocked gives a candidate, the next one of fn, the rules of its model. Who names a version gets that version.
func (s *Server) ruledLocked(f *function, fn *query.Function, c *query.Candidate, ref string) {
	family := s.families[c.Model.ID.Name]
	if strings.Contains(ref, "@") {
		return
	}
	if r := family.rules.live; r != nil {
		d := family.versions[r.other]
		c.Route = &query.Route{Rule: r.rule, Model: d.model, Queue: d.queueLocked(f)}
	}
	if r := family.rules.tee; r != nil {
		d := family.versions[r.other]
		fn.Tees = append(fn.Tees, query.Tee{
			Candidate: query.Candidate{Model: d.model, Queue: d.shadowQueueLocked(f)}, Of: len(fn.Candidates), Part: r.part, Seen: r.seen,
		})
	}
}

// planRulesLocked adds the other versions of rules to what is planned for: to the planner each is a function of its own, with the weight of
// the function whose queries it gets, or, if it is only compared, the least.
func (s *Server) planRulesLocked(t *driver.Topology, f *function, at map[*deployment]int32) {
	for _, ref := range f.spec.Models {
		family := s.families[ref]
		if family == nil {
			continue
		}
		for _, r := range []*rule{family.rules.live, family.rules.tee} {
			if r == nil {
				continue
			}
			d := family.versions[r.other]
			p := r.plans[f.spec.Name]
			if p == nil {
				p = &plannedArm{key: s.keys.Add(1), choice: driver.NewChoice(planner.One, 1, d.lane)}
				r.plans[f.spec.Name] = p
			}
			info := planner.FunctionInfo{
				Key: p.key, Name: f.spec.Name + " (" + r.kind + " " + d.id.String() + ")", SLONanos: int64(f.spec.SLO), Mode: planner.One,
				Weight: f.spec.Weight, Candidates: []planner.CandidateInfo{{Model: at[d], Queue: d.queueLocked(f), Gain: 1}},
			}
			if r.kind == "shadow" {
				info.Weight, info.Background = api.MinWeight, true
				info.Candidates[0].Queue, info.Candidates[0].Gain = d.shadowQueueLocked(f), shadowGain
			}
			t.Functions = append(t.Functions, info)
			t.Choices, t.Gains = append(t.Choices, p.choice), append(t.Gains, nil)
		}
	}
}

// logOf is the inference log's stream of a function; nil: none.
func (s *Server) logOf(f *function, sig api.Signature) *inferlog.Stream {
	if s.inferences == nil || f.spec.Log == nil || f.spec.Log.Sample == 0 {
		return nil
	}
	return s.inferences.Function(f.spec.Name, sig.Inputs, sig.Outputs, f.spec.Log.Sample)
}

// noted has a family looked at soon: something has happened to one of its replicas. It never blocks: pollers call it.
func (s *Server) noted(model string) {
	s.notes.Lock()
	s.notes.models[model] = true
	s.notes.Unlock()
	s.changed()
}

func (s *Server) notesLocked() {
	s.notes.Lock()
	for name := range s.notes.models {
		s.touchLocked(name)
	}
	clear(s.notes.models)
	s.notes.Unlock()
}
