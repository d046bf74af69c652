package server

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
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
			s.publishLocked()
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// publishLocked makes the table of what there is and puts it in place.
func (s *Server) publishLocked() {
	t := &gateway.Table{
		Functions: make(map[string]*gateway.Function, len(s.functions)),
		Models:    make(map[string]*gateway.Model), Versions: make(map[api.ModelID]*gateway.Model, len(s.models)),
	}
	for id, d := range s.models {
		t.Versions[id] = d.model
	}
	serving := s.servingLocked()
	for name, d := range serving {
		t.Models[name] = d.model
	}
	for name, f := range s.functions {
		fn := &gateway.Function{
			Name: name, SLO: f.spec.SLO, ColdStart: f.spec.ColdStart, Default: f.spec.Default, MinConfidence: f.spec.MinConfidence,
			Selects: f.selects(), Mode: f.policy.Mode(), Selector: f.learned, Stats: f.stats, Learning: f.learning, Losses: f.losses,
		}
		var lanes []*driver.Lane
		for _, ref := range f.spec.Models {
			if d := s.resolveLocked(serving, ref); d != nil {
				fn.Candidates = append(fn.Candidates, gateway.Candidate{Model: d.model, Queue: d.queueLocked(f)})
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
		fn.Loss, fn.Averages = f.lossOf(fn.Candidates[0].Model.Signature)
		f.averages = fn.Averages
		fn.Shadows = s.shadowsLocked(f, serving)
		t.Functions[name] = fn
	}
	s.gw.Publish(t)
	s.replanLocked(serving)
}

// queueLocked is the function's sub-queue at the deployment, made when it is first needed.
func (d *deployment) queueLocked(f *function) int32 {
	return d.subQueueLocked(f.spec.Name, f.spec.Weight)
}

func (d *deployment) subQueueLocked(name string, weight float64) int32 {
	q, ok := d.queues[name]
	if !ok {
		q = d.lane.AddFunction(weight)
		d.queues[name] = q
	}
	return q
}

// servingLocked is the version of each model that serves: the newest that has a replica, else the newest.
func (s *Server) servingLocked() map[string]*deployment {
	serving := make(map[string]*deployment)
	for id, d := range s.models {
		best := serving[id.Name]
		if best == nil || d.beats(best) {
			serving[id.Name] = d
		}
	}
	return serving
}

func (d *deployment) beats(other *deployment) bool {
	ready, otherReady := d.model.Ready.Load() > 0, other.model.Ready.Load() > 0
	if ready != otherReady {
		return ready
	}
	return api.CompareVersions(d.id.Version, other.id.Version) > 0
}

// resolveLocked finds the deployment that "name" or "name@version" means, where serving says which versions serve.
func (s *Server) resolveLocked(serving map[string]*deployment, ref string) *deployment {
	id, err := api.ParseModelRef(ref)
	if err != nil {
		return nil
	}
	if id.Version != "" {
		return s.models[id]
	}
	return serving[id.Name]
}

// configureLocked gives every lane the objective that follows from the functions that use it.
func (s *Server) configureLocked() {
	slo := map[*deployment]time.Duration{}
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
			}
		}
	}
	for _, d := range s.models {
		c := laneConfig(*d.spec(), slo[d])
		d.objectiveNanos.Store(c.Batching.ObjectiveNanos)
		d.lane.Configure(c)
	}
}

// ready is what /readyz says: every declared model that wants replicas has one, or has failed to get one.
func (s *Server) ready() (bool, string) {
	if s.draining.Load() {
		return false, "the gateway is stopping"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting []string
	for id, d := range s.models {
		if d.spec().Replicas.Min > 0 && d.model.Ready.Load() == 0 {
			d.mu.Lock()
			failed := d.failed
			d.mu.Unlock()
			if !failed {
				waiting = append(waiting, id.String())
			}
		}
	}
	if len(waiting) == 0 {
		return true, ""
	}
	sort.Strings(waiting)
	if more := len(waiting) - 5; more > 0 {
		return false, fmt.Sprintf("waiting for the first replica of %v and %d more", waiting[:5], more)
	}
	return false, fmt.Sprintf("waiting for the first replica of %v", waiting)
}

// settle waits until the deployment's replicas have answered what it had accepted, or ctx is done.
func (d *deployment) settle(ctx context.Context) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var snap scheduler.Snapshot
	for {
		if d.lane.Snapshot(&snap); snap.Held == 0 {
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
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
		defer cancel()
		d.settle(ctx)
		if err := d.close(ctx, api.ModelRemoved); err != nil {
			s.log.Error("model version did not end", zap.Stringer("model", d.id), zap.Error(err))
		}
	}()
}
