package deployment

import (
	"slices"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// maxGone bounds the series of versions that are gone. A gateway that gets a new version of each of its models every day has at
// most this many more than it has models. Prometheus has kept what they counted.
const maxGone = 1000 //xebec:limit versions that are gone and whose restarts and exits metrics still show

// tally has the counts of every version's replicas, also of versions that are gone: a sum over versions must not fall when one of
// them is deleted, and one that is declared again must not begin at 0. The zero value is empty.
type tally struct {
	mu       sync.Mutex
	versions map[api.ModelID]*counted
	gone     []api.ModelID // the one that has been gone for longest is first
}

type counted struct {
	containers.Counts
	deployments int // that count here: a version that is replaced has two for a while
}

// take returns the counts of a version that gets a deployment.
func (t *tally) take(id api.ModelID) *containers.Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.versions == nil {
		t.versions = map[api.ModelID]*counted{}
	}
	c := t.versions[id]
	if c == nil {
		c = new(counted)
		t.versions[id] = c
	} else if c.deployments == 0 {
		i := slices.Index(t.gone, id)
		t.gone = slices.Delete(t.gone, i, i+1)
	}
	c.deployments++
	return &c.Counts
}

// leave says that a deployment of the version has ended.
func (t *tally) leave(id api.ModelID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.versions[id]
	if c.deployments--; c.deployments > 0 {
		return
	}
	if !c.Launched() {
		delete(t.versions, id)
		return
	}
	if t.gone = append(t.gone, id); len(t.gone) > maxGone {
		delete(t.versions, t.gone[0])
		t.gone = slices.Delete(t.gone, 0, 1)
	}
}

// read returns the counts of all versions that ever had a replica, in no order.
func (t *tally) read() (all []obs.ReplicaSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.versions {
		if !c.Launched() {
			continue
		}
		s := obs.ReplicaSample{Name: id.Name, Version: id.Version, Gone: c.deployments == 0, Restarts: c.Restarts(), Exits: map[string]uint64{}}
		for cause, n := range c.Exits() {
			s.Exits[cause.String()] = n
		}
		all = append(all, s)
	}
	return all
}

// Replicas returns how often replicas of each version were restarted and ended, also of versions that are gone.
func (h *Host) Replicas() []obs.ReplicaSample { return h.tally.read() }
