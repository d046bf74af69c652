package server

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// preferGain is how much less each candidate's answer is worth than that of the one before it, for functions that only say
// which they prefer: enough to be worth a replica that idles, not enough to leave a query without an answer.
const preferGain = 0.9

// replanLocked tells the epoch what there is to plan for, if that has changed.
func (s *Server) replanLocked() {
	if s.epoch == nil {
		return
	}
	t := s.topologyLocked()
	if s.planned != nil && slices.Equal(t.Lanes, s.planned.Lanes) && slices.Equal(t.Choices, s.planned.Choices) && reflect.DeepEqual(t.Topology, s.planned.Topology) {
		return
	}
	s.planned = t
	s.epoch.Set(t)
}

// topologyLocked lists functions, models and devices in an order that depends on nothing but their names.
func (s *Server) topologyLocked() *driver.Topology {
	t := &driver.Topology{}
	at := make(map[*deployment]int32, len(s.models))
	devices := make(map[string]int32, len(s.devices))
	for i, name := range sortedNames(s.devices) {
		devices[name] = int32(i)
		t.Topology.Devices = append(t.Topology.Devices, name)
		t.Devices = append(t.Devices, s.devices[name])
	}
	all := make([]*deployment, 0, len(s.models))
	for _, d := range s.models {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *deployment) int {
		if a.id.Name != b.id.Name {
			return strings.Compare(a.id.Name, b.id.Name)
		}
		return api.CompareVersions(a.id.Version, b.id.Version)
	})
	for i, d := range all {
		at[d] = int32(i)
		spec := d.spec()
		info := planner.ModelInfo{
			Key: d.key, ID: d.id, Cost: spec.Cost, Device: -1, HoldNanos: int64(spec.Batching.Hold), MaxBatch: spec.Batching.Max,
			FixedObjective: spec.Batching.Objective > 0,
			Pinned:         spec.Batching.Pad || spec.Batching.Policy == api.BatchFixed || spec.Batching.Policy == api.BatchNone,
		}
		if i, ok := devices[spec.Device]; ok {
			info.Device = i
		}
		t.Models = append(t.Models, info)
		t.Lanes = append(t.Lanes, d.lane)
	}
	for _, name := range sortedNames(s.functions) {
		f := s.functions[name]
		info := planner.FunctionInfo{
			Key: f.key, Name: name, Weight: f.spec.Weight, SLONanos: int64(f.spec.SLO), Budget: f.spec.Budget, Mode: f.mode(),
		}
		for i, ref := range f.spec.Models {
			if d := s.resolveLocked(ref); d != nil {
				info.Candidates = append(info.Candidates, planner.CandidateInfo{
					Model: at[d], Queue: d.queueLocked(f), Gain: math.Pow(preferGain, float64(i)),
				})
			}
		}
		if len(info.Candidates) > 0 {
			t.Functions = append(t.Functions, info)
			t.Choices, t.Gains = append(t.Choices, f.choice), append(t.Gains, f.gains())
			s.planShadowsLocked(t, f, at)
			s.planRulesLocked(t, f, at)
		}
	}
	return t
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// weighLocked gives a function's sub-queues its new weight.
func (s *Server) weighLocked(spec api.FunctionSpec) {
	for _, d := range s.models {
		if q, ok := d.queues[spec.Name]; ok {
			d.lane.Weigh(q, spec.Weight)
		}
	}
}

// deviceNames is for people.
func (s *Server) deviceNames() string {
	if len(s.devices) == 0 {
		return "none (`xebec serve --device NAME` declares one)"
	}
	return "one of " + strings.Join(sortedNames(s.devices), ", ")
}

// nvidiaDevices are the devices that NVIDIA's driver shows: /dev/nvidia0 is gpu0.
func nvidiaDevices() []string {
	paths, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil {
		panic(err) // the pattern is ours
	}
	names := []string{} // not nil: there are none
	for _, p := range paths {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(p), "nvidia%d", &n); err == nil {
			names = append(names, fmt.Sprintf("gpu%d", n))
		}
	}
	return names
}
