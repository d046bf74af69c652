package main

import (
	"context"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// topSnapshot is what one poll of the gateway found.
type topSnapshot struct {
	at        time.Time
	gateway   api.GatewayStatus
	functions []api.FunctionStatus
	models    []api.ModelStatus
	traffic   []api.TrafficStatus
}

// topPoll asks the gateway how everything stands.
func (c *cli) topPoll(ctx context.Context) (*topSnapshot, error) {
	var (
		s         topSnapshot
		functions api.FunctionList
		models    api.ModelList
		traffic   api.TrafficList
	)
	for _, part := range []struct {
		path string
		into any
	}{{"/v1/describe/gateway", &s.gateway}, {"/v1/functions", &functions}, {"/v1/models", &models}, {"/v1/traffic", &traffic}} {
		if err := c.get(ctx, part.path, part.into); err != nil {
			return nil, err
		}
	}
	s.at, s.functions, s.models, s.traffic = c.now(), functions.Functions, models.Models, traffic.Traffic
	return &s, nil
}

// topFrame is what "xebec top" shows at one time. What is not known, for nothing was polled before or there was nothing to be measured, is
// nil.
type topFrame struct {
	Time      time.Time     `json:"time"`
	Gateway   topGateway    `json:"gateway"`
	Functions []topFunction `json:"functions"`
	Models    []topModel    `json:"models"`
}

type topGateway struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started,omitzero"`
	Ready    bool      `json:"ready"`
	Draining bool      `json:"draining"`
	// QueriesPerSecond is the sum of the functions'.
	QueriesPerSecond float64 `json:"queries_per_second"`
	Inflight         int     `json:"inflight"`
	// CacheHits is the part of the look-ups that needed no evaluation of their own.
	CacheHits *float64 `json:"cache_hits,omitempty"`
	CacheOn   bool     `json:"cache_on"`
	Store     string   `json:"store,omitempty"`
	StoreAway bool     `json:"store_away,omitempty"`
	Revision  uint64   `json:"revision,omitempty"`
	Replicas  int      `json:"replicas"`
	// Problems are those of the sources of models.
	Problems int `json:"problems"`
}

type topFunction struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	api.RateStatus
	// ErrorsPerSecond counts queries without an answer: those that were given the default have one.
	ErrorsPerSecond   *float64   `json:"errors_per_second,omitempty"`
	DefaultsPerSecond *float64   `json:"defaults_per_second,omitempty"`
	Policy            string     `json:"policy"`
	Shares            []topShare `json:"shares"`
}

// topShare is a candidate's part of a function's queries, nil where there is but one candidate or the policy has not said.
type topShare struct {
	Candidate string   `json:"candidate"`
	Share     *float64 `json:"share,omitempty"`
}

type topModel struct {
	// Model is "name@version".
	Model   string           `json:"model"`
	Phase   api.VersionPhase `json:"phase"`
	State   api.ModelState   `json:"state"`
	Source  string           `json:"source,omitempty"`
	Serving bool             `json:"serving"`
	Arms    []topArm         `json:"arms,omitempty"`
	Ready   int              `json:"ready"`
	Wanted  int              `json:"wanted"`
	Queue   int              `json:"queue"`
	// Cap is the largest of the replicas' batch caps, MeanBatch how many queries a batch had.
	Cap       int      `json:"cap"`
	MeanBatch *float64 `json:"mean_batch,omitempty"`
	// Busy is the part of the ready replicas' time in which they evaluated.
	Busy *float64 `json:"busy,omitempty"`
	api.RateStatus
	Restarts int `json:"restarts"`
}

// topArm is what a traffic rule gives a version.
type topArm struct {
	Rule  string  `json:"rule"`
	Share float64 `json:"share"`
}

// frameOf makes rows of what was polled. Counters are compared with those of the poll before; nil: there was none.
func frameOf(before, now *topSnapshot) *topFrame {
	if before != nil && (!before.gateway.Started.Equal(now.gateway.Started) || before.gateway.PID != now.gateway.PID) {
		before = nil // another gateway, whose counters began at 0
	}
	d := differ{}
	if before != nil {
		d.seconds = now.at.Sub(before.at).Seconds()
	}
	g := &now.gateway
	f := &topFrame{Time: now.at, Functions: []topFunction{}, Models: []topModel{}, Gateway: topGateway{
		Version: g.Version, Started: g.Started, Ready: g.Ready, Draining: g.Draining,
		Inflight: g.Inflight, CacheOn: g.Cache != nil, Revision: g.Revision, Replicas: g.Replicas,
	}}
	if g.Store != nil {
		f.Gateway.Store, f.Gateway.StoreAway = g.Store.Name, g.Store.Away
	}
	for _, s := range g.Sources {
		f.Gateway.Problems += len(s.Problems)
	}
	d.functions(f, before, now)
	d.models(f, before, now)
	f.Gateway.CacheHits = d.hits(before, now)
	return f
}

// differ makes rates of counters.
type differ struct {
	seconds float64 // between the polls; 0: there was none before
}

// perSecond is nil where nothing can be said: one of the polls has not got the counter, or it began anew.
func (d differ) perSecond(before, now uint64) *float64 {
	if d.seconds <= 0 || now < before {
		return nil
	}
	rate := float64(now-before) / d.seconds
	return &rate
}

func (d differ) functions(f *topFrame, before, now *topSnapshot) {
	was := map[string]*api.FunctionStatus{}
	if before != nil {
		for i := range before.functions {
			was[before.functions[i].Spec.Name] = &before.functions[i]
		}
	}
	failed := func(s *api.FunctionStatus) uint64 {
		_, n := counts(s.Queries)
		return n - min(s.Defaults, n)
	}
	for i := range now.functions {
		s := &now.functions[i]
		row := topFunction{Name: s.Spec.Name, Ready: s.Ready, RateStatus: s.Rate, Policy: s.Spec.Policy.Name, Shares: []topShare{}}
		if w := was[s.Spec.Name]; w != nil {
			row.ErrorsPerSecond, row.DefaultsPerSecond = d.perSecond(failed(w), failed(s)), d.perSecond(w.Defaults, s.Defaults)
		}
		for _, ref := range s.Spec.Models {
			row.Shares = append(row.Shares, topShare{Candidate: ref})
		}
		if s.Policy != nil && len(row.Shares) > 1 {
			for _, c := range s.Policy.Candidates {
				if i := slices.IndexFunc(row.Shares, func(o topShare) bool { return o.Candidate == c.Ref }); i >= 0 {
					row.Shares[i].Share = &c.Share
				}
			}
		}
		f.Gateway.QueriesPerSecond += s.Rate.QueriesPerSecond
		f.Functions = append(f.Functions, row)
	}
}

func (d differ) models(f *topFrame, before, now *topSnapshot) {
	was := map[api.ModelID]*api.ModelStatus{}
	if before != nil {
		for i := range before.models {
			was[before.models[i].Spec.ID()] = &before.models[i]
		}
	}
	arms := map[api.ModelID][]topArm{}
	for i := range now.traffic {
		t := &now.traffic[i]
		for _, a := range t.Arms {
			id := api.ModelID{Name: t.Spec.Model, Version: a.Version}
			arms[id] = append(arms[id], topArm{a.Rule, a.Share})
		}
	}
	for i := range now.models {
		m := &now.models[i]
		id := m.Spec.ID()
		row := topModel{
			Model: id.String(), Phase: m.Version.Phase, State: m.State, Source: m.Version.Source, Serving: m.Serving, Arms: arms[id], Queue: m.QueueDepth,
			Ready: m.ReadyReplicas(), RateStatus: m.Rate,
		}
		for r := range m.Replicas {
			row.Cap = max(row.Cap, m.Replicas[r].Cap)
			row.Restarts += m.Replicas[r].Restarts
			if m.Replicas[r].State != api.ReplicaStopping {
				row.Wanted++
			}
		}
		if w := was[id]; w != nil {
			row.MeanBatch, row.Busy = d.batches(w, m)
		}
		f.Models = append(f.Models, row)
	}
}

// batches compares what the replicas have done.
func (d differ) batches(before, now *api.ModelStatus) (meanBatch, busy *float64) {
	if d.seconds <= 0 {
		return nil, nil
	}
	was := make(map[uint64]*api.ReplicaStatus, len(before.Replicas))
	for i := range before.Replicas {
		was[before.Replicas[i].ID] = &before.Replicas[i]
	}
	batches, queries, micros, ready := 0.0, 0.0, 0.0, 0
	for i := range now.Replicas {
		r := &now.Replicas[i]
		if r.State == api.ReplicaReady {
			ready++
		}
		b, q := r.Batches, r.Queries
		// Counters are those of a process: one that has less than before is another.
		if w := was[r.ID]; w != nil && w.PID == r.PID && w.Batches <= b && w.Queries <= q {
			b, q = b-w.Batches, q-w.Queries
		}
		batches += float64(b)
		queries += float64(q)
		micros += float64(b) * float64(r.Profile.MeanMicros)
	}
	if batches > 0 {
		mean := queries / batches
		meanBatch = &mean
	}
	if ready > 0 {
		part := min(1, micros/1e6/d.seconds/float64(ready))
		busy = &part
	}
	return meanBatch, busy
}

// hits is how well the prediction cache has done since the poll before.
func (d differ) hits(before, now *topSnapshot) *float64 {
	if before == nil {
		return nil
	}
	sum := func(s *topSnapshot) (hits, all uint64) {
		for i := range s.models {
			if c := s.models[i].Cache; c != nil {
				hits += c.Hits + c.Coalesced
				all += c.Hits + c.Coalesced + c.Misses
			}
		}
		return hits, all
	}
	hitsBefore, allBefore := sum(before)
	hitsNow, allNow := sum(now)
	if hitsNow < hitsBefore || allNow <= allBefore { // nothing was looked up, or a model was deleted
		return nil
	}
	part := min(1, float64(hitsNow-hitsBefore)/float64(allNow-allBefore))
	return &part
}
