package server

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"go.uber.org/zap"
)

// endpoint is a function's counters; they outlive changes of its spec.
type endpoint = obs.Endpoint

// changed asks for the table to be published anew. It never blocks: pollers call it.
func (s *Server) changed() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

func (s *Server) keepPublishing(ctx context.Context) {
	for {
		select {
		case <-s.refresh:
			s.mu.Lock()
			s.notesLocked()
			s.stepAllLocked()
			s.opened = s.opened || s.readLocked() && len(s.waitingLocked()) == 0
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// publishLocked makes the table of what there is and puts it in place.
func (s *Server) publishLocked() {
	t := &query.Table{
		Functions: make(map[string]*query.Function, len(s.functions)),
		Models:    make(map[string]*query.Model), Versions: make(map[api.ModelID]*query.Model, len(s.models)),
		Routes: map[string]*query.Route{}, Tees: map[string][]query.Tee{},
	}
	for id, d := range s.models {
		t.Versions[id] = d.model
	}
	for name, f := range s.families {
		if d := f.answering(); d != nil {
			t.Models[name] = d.model
		}
		s.publishRulesLocked(t, f)
	}
	first := map[*deployment][]*driver.Choice{}
	for name, f := range s.functions {
		fn := &query.Function{
			Name: name, SLO: f.spec.SLO, ColdStart: f.spec.ColdStart, Default: f.spec.Default, MinConfidence: f.spec.MinConfidence,
			Selects: f.selects(), Mode: f.policy.Mode(), Selector: f.learned, Stats: f.stats, Learning: f.learning, Losses: f.losses,
		}
		var lanes []*driver.Lane
		for _, ref := range f.spec.Models {
			if d := s.resolveLocked(ref); d != nil {
				c := query.Candidate{Model: d.model, Queue: d.queueLocked(f)}
				s.ruledLocked(f, fn, &c, ref)
				fn.Candidates = append(fn.Candidates, c)
				lanes = append(lanes, d.lane)
			}
		}
		if len(lanes) != len(f.spec.Models) {
			continue // Apply and Delete keep this from happening
		}
		if !slices.Equal(lanes, f.lanes) {
			f.lanes, f.choice = lanes, driver.NewChoice(f.mode(), len(lanes), lanes[0])
		}
		fn.Choice = f.choice
		if d := s.resolveLocked(f.spec.Models[0]); d != nil {
			first[d] = append(first[d], f.choice)
		}
		fn.Loss, fn.Averages = f.lossOf(fn.Candidates[0].Model.Signature)
		f.averages = fn.Averages
		fn.Shadows = s.shadowsLocked(f)
		fn.Log = s.logOf(f, fn.Candidates[0].Model.Signature)
		t.Functions[name] = fn
	}
	for _, d := range s.models {
		old, choices := d.choices.Load(), first[d]
		switch {
		case choices == nil:
			d.choices.Store(nil)
		case old == nil || !slices.Equal(*old, choices):
			kept := choices // what stays the same is not kept anew: of ten thousand models nearly all do
			d.choices.Store(&kept)
		}
	}
	s.gw.Publish(t)
	s.replanLocked()
}

// queueLocked is the function's sub-queue at the deployment, made when it is first needed.
func (d *deployment) queueLocked(f *function) int32 {
	return d.subQueueLocked(f.spec.Name, f.spec.Weight)
}

func (d *deployment) subQueueLocked(name string, weight float64) int32 {
	q, ok := d.queues[name]
	if !ok {
		q = d.lane.AddFunction(weight)
		if d.queues == nil {
			d.queues = map[string]int32{}
		}
		d.queues[name] = q
	}
	return q
}

// resolveLocked finds the deployment that "name", "name@version" or "name@label" means.
func (s *Server) resolveLocked(ref string) *deployment {
	id, err := api.ParseModelRef(ref)
	if err != nil {
		return nil
	}
	f := s.families[id.Name]
	switch {
	case f == nil:
		return nil
	case id.Version == "":
		return f.answering()
	}
	if d := f.versions[id.Version]; d != nil || f.traffic == nil {
		return d
	}
	return f.versions[f.traffic.Labels[id.Version]]
}

// configureLocked gives every lane the objective that follows from the functions that use it.
func (s *Server) configureLocked() {
	slo, weight := map[*deployment]time.Duration{}, map[*deployment]float64{}
	versions := make(map[string][]*deployment, len(s.models))
	for id, d := range s.models {
		versions[id.Name] = append(versions[id.Name], d)
	}
	for _, f := range s.functions {
		for _, ref := range f.spec.Refs() {
			id, err := api.ParseModelRef(ref)
			if err != nil {
				continue
			}
			for _, d := range versions[id.Name] {
				if (id.Version == "" || id.Version == d.id.Version) && (slo[d] == 0 || f.spec.SLO < slo[d]) {
					slo[d] = f.spec.SLO
				}
				if id.Version == "" || id.Version == d.id.Version {
					weight[d] = max(weight[d], f.spec.Weight)
				}
			}
		}
	}
	for _, d := range s.models {
		c := laneConfig(*d.spec(), slo[d])
		d.sloNanos.Store(int64(slo[d]))
		d.weightBits.Store(math.Float64bits(weight[d]))
		d.objectiveNanos.Store(c.Batching.ObjectiveNanos)
		d.lane.Configure(c)
	}
}

// ready is what /readyz says: every model that wants replicas has a version that may answer, or has failed to get one, and so has every
// version that a function names.
func (s *Server) ready() (bool, string) {
	if s.draining.Load() {
		return false, "the gateway is stopping"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readLocked() {
		return false, "a watched directory of models has not been read yet"
	}
	waiting := s.waitingLocked()
	if len(waiting) == 0 {
		return true, ""
	}
	sort.Strings(waiting)
	if more := len(waiting) - 5; more > 0 {
		return false, fmt.Sprintf("waiting for the first replica of %v and %d more", waiting[:5], more)
	}
	return false, fmt.Sprintf("waiting for the first replica of %v", waiting)
}

// waitingLocked are the versions that are to answer, and cannot yet.
func (s *Server) waitingLocked() (waiting []string) {
	for _, f := range s.families {
		for v, d := range f.versions {
			if (v == f.serving || s.named[d.id]) && d.comingLocked() {
				waiting = append(waiting, d.id.String())
			}
		}
	}
	return waiting
}

// comingLocked reports whether the version is to answer, cannot yet, and has not failed to.
func (d *deployment) comingLocked() bool {
	switch d.life.state {
	case registry.Loading, registry.Validating:
		if d.asked.Load() == 0 {
			return false // there is no room
		}
	case registry.Available:
		if d.asked.Load() == 0 || d.model.Ready.Load() > 0 {
			return false
		}
	default:
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.failed
}

// settle waits until the deployment's replicas have answered what it had accepted, or ctx is done.
func (d *deployment) settle(ctx context.Context) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var snap scheduler.Snapshot
	for {
		// Whoever has had his answer already is not waited for, where nobody evaluates his query for its own sake.
		if d.lane.Snapshot(&snap); snap.Held == 0 || snap.Held == snap.Late && len(snap.Replicas) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// retire ends a deployment that is no longer in any table, off the caller's path: what it has accepted is answered first.
func (s *Server) retire(d *deployment) {
	s.ending.Add(1)
	go func() {
		defer s.ending.Done()
		s.awaitPublished()
		ctx, cancel := s.patience()
		defer cancel()
		s.awaitIdle(ctx, d) // what takes longer ends as "model removed"
		if err := d.close(ctx, api.ModelRemoved); err != nil {
			s.log.Error("model version did not end", zap.Stringer("model", d.id), zap.Error(err))
		}
	}()
}
