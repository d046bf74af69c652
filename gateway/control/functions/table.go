package functions

import (
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Publish makes the table of all models and functions and puts it in place, tells the planner what there is to plan for, and
// removes the sub-queues that no table has any more. The catalog's lock is held.
func (fs *Functions) Publish(s *versions.State) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &query.Table{
		Functions: make(map[string]*query.Function, len(fs.all)),
		Models:    make(map[string]*query.Model), Versions: make(map[api.ModelID]*query.Model, s.Len()),
		Unlinked: map[string]*query.Unlinked{}, Routes: map[string]*query.Route{}, Tees: map[string][]query.Tee{},
	}
	for id, v := range s.Versions() {
		t.Versions[id] = v.Model()
	}
	for name, family := range s.Families() {
		if v := family.Answering(); v != nil {
			t.Models[name] = v.Model()
		}
		addRules(t, family)
	}
	first := map[*versions.Version][]*driver.Choice{} // choices by the first candidate
	for name, f := range fs.all {
		if len(f.spec.Models) == 0 {
			t.Unlinked[name] = &query.Unlinked{Name: name, Default: f.spec.Default, Stats: f.stats}
			continue
		}
		if fn, v := fs.publish(s, f); fn != nil {
			t.Functions[name] = fn
			first[v] = append(first[v], f.choice)
		}
	}
	for _, v := range s.Versions() {
		v.SetChoices(first[v])
	}
	fs.cfg.Path.Publish(t)
	fs.plan(s)
	for _, o := range fs.orphans {
		o.Remove()
	}
	fs.orphans = nil
}

// publish is a function as the query path sees it, and its first candidate. Nil: a candidate is missing, which declarations do
// not let happen.
func (fs *Functions) publish(s *versions.State, f *function) (*query.Function, *versions.Version) {
	fn := &query.Function{
		Name: f.spec.Name, SLO: f.spec.SLO, ColdStart: f.spec.ColdStart, Default: f.spec.Default, CORS: f.spec.CORS, MinConfidence: f.spec.MinConfidence,
		Selects: f.selects(), Mode: f.policy.Mode(), Selector: f.learned, Needs: selection.NeedsOf(f.policy), Stats: f.stats, Learning: f.learning, Losses: f.losses,
	}
	var first *versions.Version
	var lanes []*driver.Lane
	for _, ref := range f.spec.Models {
		v := s.Resolve(ref)
		if v == nil {
			return nil, nil
		}
		if first == nil {
			first = v
		}
		if i := len(fn.Candidates); f.worth != nil {
			f.worth.of(i, v.ID(), &f.losses[i], fs.judgedBefore(v), time.Now())
		}
		c := query.Candidate{Model: v.Model(), Queue: f.queue(v)}
		if !strings.Contains(ref, "@") { // a reference to a version gets that version
			f.addRules(fn, &c, s.Family(v.ID().Name))
		}
		fn.Candidates = append(fn.Candidates, c)
		lanes = append(lanes, v.Lane())
	}
	if len(lanes) == 0 {
		return nil, nil
	}
	if !slices.Equal(lanes, f.lanes) {
		f.lanes, f.choice = lanes, driver.NewChoice(f.mode(), len(lanes), lanes[0])
	}
	fn.Choice = f.choice
	sig := fn.Candidates[0].Model.Signature
	fn.Label = f.spec.LabelIndex(sig.Outputs)
	fn.Loss, fn.Averages = f.lossOf(sig)
	f.averages = fn.Averages
	fn.Shadows = f.publishShadows(s)
	fn.Log = fs.log(f, sig)
	return fn, first
}

// judgedBefore is what an earlier process knew of a version.
func (fs *Functions) judgedBefore(v *versions.Version) (b before) {
	if fs.cfg.Judged != nil {
		b.labels, b.losses, b.at = fs.cfg.Judged(v.Deployment)
	}
	return b
}

// publishShadows are the function's shadows as the query path sees them.
func (f *function) publishShadows(s *versions.State) []query.Shadow {
	var out []query.Shadow
	for _, ref := range sortedNames(f.shadows) {
		v := s.Resolve(ref)
		if v == nil {
			continue
		}
		sh := f.shadows[ref]
		if sh.lane != v.Lane() {
			sh.lane, sh.choice = v.Lane(), driver.NewChoice(planner.All, 1, v.Lane())
		}
		out = append(out, query.Shadow{
			Candidate: query.Candidate{Model: v.Model(), Queue: f.shadowQueue(v)}, Part: f.spec.Shadow[ref], Choice: sh.choice,
		})
	}
	return out
}

// addRules adds a family's labels and rules to a table, for requests that address the model.
func addRules(t *query.Table, family *versions.Family) {
	if family.Traffic == nil {
		return
	}
	for label, name := range family.Traffic.Labels {
		if v := family.Versions[name]; v != nil && family.Versions[label] == nil {
			t.Versions[api.ModelID{Name: family.Name, Version: label}] = v.Model()
		}
	}
	if r, v := family.Live(); r != nil {
		t.Routes[family.Name] = &query.Route{Rule: r.Rule, Model: v.Model(), Queue: v.Model().Direct}
	}
	if r, v := family.Tee(); r != nil {
		t.Tees[family.Name] = []query.Tee{{Candidate: query.Candidate{Model: v.Model(), Queue: v.Model().Direct}, Part: r.Part, Compared: r.Seen}}
	}
}

// addRules gives a candidate, the next one of fn, the rules of its model.
func (f *function) addRules(fn *query.Function, c *query.Candidate, family *versions.Family) {
	if r, v := family.Live(); r != nil {
		c.Route = &query.Route{Rule: r.Rule, Model: v.Model(), Queue: f.queue(v)}
	}
	if r, v := family.Tee(); r != nil {
		fn.Tees = append(fn.Tees, query.Tee{
			Candidate: query.Candidate{Model: v.Model(), Queue: f.shadowQueue(v)}, Of: len(fn.Candidates), Part: r.Part, Compared: r.Seen,
		})
	}
}
