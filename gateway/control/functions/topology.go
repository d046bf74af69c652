package functions

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// preferGain is the worth of each candidate's answer relative to the one before it, for functions that only say which they
// prefer: low enough to be worth an idle replica, high enough not to leave a query without an answer.
const preferGain = 0.9

// shadowGain is the worth of a shadow's answer relative to an answer that is given.
const shadowGain = 0.01

// plan tells the epoch what there is to plan for, if that has changed.
func (fs *Functions) plan(s *versions.State) {
	if fs.cfg.Epoch == nil {
		return
	}
	t := fs.topology(s)
	if fs.planned != nil && slices.Equal(t.Lanes, fs.planned.Lanes) && slices.Equal(t.Choices, fs.planned.Choices) && reflect.DeepEqual(t.Topology, fs.planned.Topology) {
		return
	}
	fs.planned = t
	fs.cfg.Epoch.Set(t)
}

// topology lists functions, models and devices in an order that depends on nothing but their names.
func (fs *Functions) topology(s *versions.State) *driver.Topology {
	t := &driver.Topology{}
	at := make(map[*versions.Version]int32, s.Len())
	devices := make(map[string]int32, len(fs.cfg.Devices))
	for i, name := range sortedNames(fs.cfg.Devices) {
		devices[name] = int32(i)
		t.Topology.Devices = append(t.Topology.Devices, name)
		t.Devices = append(t.Devices, fs.cfg.Devices[name])
	}
	all := make([]*versions.Version, 0, s.Len())
	for _, v := range s.Versions() {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *versions.Version) int {
		if a.ID().Name != b.ID().Name {
			return strings.Compare(a.ID().Name, b.ID().Name)
		}
		return api.CompareVersions(a.ID().Version, b.ID().Version)
	})
	for i, v := range all {
		at[v] = int32(i)
		spec := v.Spec()
		info := planner.ModelInfo{
			Key: v.Key(), ID: v.ID(), Cost: spec.Cost, Device: -1, HoldNanos: int64(spec.Batching.Hold), MaxBatch: spec.Batching.Max,
			FixedObjective: spec.Batching.Objective > 0,
			Pinned:         spec.Batching.Pad || spec.Batching.Policy == api.BatchFixed || spec.Batching.Policy == api.BatchNone,
		}
		if i, ok := devices[spec.Device]; ok {
			info.Device = i
		}
		t.Models = append(t.Models, info)
		t.Lanes = append(t.Lanes, v.Lane())
	}
	for _, name := range sortedNames(fs.all) {
		f := fs.all[name]
		info := planner.FunctionInfo{
			Key: f.key, Name: name, Weight: f.spec.Weight, SLONanos: int64(f.spec.SLO), Budget: f.spec.Budget, Mode: f.mode(),
		}
		for i, ref := range f.spec.Models {
			if v := s.Resolve(ref); v != nil {
				info.Candidates = append(info.Candidates, planner.CandidateInfo{
					Model: at[v], Queue: f.queue(v), Gain: math.Pow(preferGain, float64(i)),
				})
			}
		}
		if len(info.Candidates) > 0 {
			t.Functions = append(t.Functions, info)
			t.Choices, t.Gains = append(t.Choices, f.choice), append(t.Gains, f.gains())
			f.planShadows(s, t, at)
			fs.planRules(s, t, f, at)
		}
	}
	return t
}

// planShadows adds the function's shadows to what is planned for.
func (f *function) planShadows(s *versions.State, t *driver.Topology, at map[*versions.Version]int32) {
	for _, ref := range sortedNames(f.shadows) {
		v, sh := s.Resolve(ref), f.shadows[ref]
		if v == nil || sh.choice == nil {
			continue
		}
		t.Functions = append(t.Functions, planner.FunctionInfo{
			Key: sh.key, Name: shadowName(f.spec.Name), Weight: api.MinWeight, SLONanos: int64(f.spec.SLO), Mode: planner.All, Background: true,
			Candidates: []planner.CandidateInfo{{Model: at[v], Queue: f.shadowQueue(v), Gain: shadowGain}},
		})
		t.Choices, t.Gains = append(t.Choices, sh.choice), append(t.Gains, nil)
	}
}

// planRules adds the other versions of traffic rules to what is planned for. To the planner each is a function of its own, with
// the weight of the function whose queries it gets, or with the least weight if it is only compared.
func (fs *Functions) planRules(s *versions.State, t *driver.Topology, f *function, at map[*versions.Version]int32) {
	for _, ref := range f.spec.Models {
		family := s.Family(ref)
		if family == nil {
			continue
		}
		for _, inForce := range []func() (*versions.Rule, *versions.Version){family.Live, family.Tee} {
			r, v := inForce()
			if r == nil {
				continue
			}
			p := r.Plans[f.spec.Name]
			if p == nil {
				p = &versions.PlannedArm{Key: fs.cfg.NextKey(), Choice: driver.NewChoice(planner.One, 1, v.Lane())}
				r.Plans[f.spec.Name] = p
			}
			info := planner.FunctionInfo{
				Key: p.Key, Name: f.spec.Name + " (" + r.Kind + " " + v.ID().String() + ")", SLONanos: int64(f.spec.SLO), Mode: planner.One,
				Weight: f.spec.Weight, Candidates: []planner.CandidateInfo{{Model: at[v], Queue: f.queue(v), Gain: 1}},
			}
			if r.Kind == versions.Shadow {
				info.Weight, info.Background = api.MinWeight, true
				info.Candidates[0].Queue, info.Candidates[0].Gain = f.shadowQueue(v), shadowGain
			}
			t.Functions = append(t.Functions, info)
			t.Choices, t.Gains = append(t.Choices, p.Choice), append(t.Gains, nil)
		}
	}
}
