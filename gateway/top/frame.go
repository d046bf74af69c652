package top

import (
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Frame is what `xebec top` shows at one time. A pointer is nil where the figure is unknown: there was no earlier poll
// to compare with, or nothing to measure.
type Frame struct {
	Time      time.Time  `json:"time"`
	Gateway   Gateway    `json:"gateway"`
	Functions []Function `json:"functions"`
	Models    []Model    `json:"models"`
}

// Gateway is the head of a frame.
type Gateway struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started,omitzero"`
	Ready    bool      `json:"ready"`
	Draining bool      `json:"draining"`
	// QueriesPerSecond is the sum over the functions.
	QueriesPerSecond float64 `json:"queries_per_second"`
	Inflight         int     `json:"inflight"`
	// CacheHits is the fraction of look-ups that needed no evaluation of their own.
	CacheHits *float64 `json:"cache_hits,omitempty"`
	CacheOn   bool     `json:"cache_on"`
	Store     string   `json:"store,omitempty"`
	StoreAway bool     `json:"store_away,omitempty"`
	Revision  uint64   `json:"revision,omitempty"`
	Replicas  int      `json:"replicas"`
	// Problems counts the problems of the sources of models.
	Problems int `json:"problems"`
}

// Function is the row of a function.
type Function struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	api.RateStatus
	// ErrorsPerSecond counts queries without an answer. A default is an answer.
	ErrorsPerSecond   *float64 `json:"errors_per_second,omitempty"`
	DefaultsPerSecond *float64 `json:"defaults_per_second,omitempty"`
	Policy            string   `json:"policy"`
	Shares            []Share  `json:"shares"`
}

// Share is the fraction of a function's queries that a candidate gets. It is nil if there is only one candidate, or if
// the policy does not report it.
type Share struct {
	Candidate string   `json:"candidate"`
	Share     *float64 `json:"share,omitempty"`
}

// Model is the row of a model version.
type Model struct {
	// Model is "name@version".
	Model   string           `json:"model"`
	Phase   api.VersionPhase `json:"phase"`
	State   api.ModelState   `json:"state"`
	Source  string           `json:"source,omitempty"`
	Serving bool             `json:"serving"`
	Arms    []Arm            `json:"arms,omitempty"`
	Ready   int              `json:"ready"`
	Wanted  int              `json:"wanted"`
	Queue   int              `json:"queue"`
	// Cap is the largest of the replicas' batch caps, MeanBatch the mean number of queries in a batch.
	Cap       int      `json:"cap"`
	MeanBatch *float64 `json:"mean_batch,omitempty"`
	// Busy is the fraction of the ready replicas' time that they spent evaluating.
	Busy *float64 `json:"busy,omitempty"`
	api.RateStatus
	Restarts int `json:"restarts"`
}

// Arm is the share that a traffic rule gives to a version.
type Arm struct {
	Rule  string  `json:"rule"`
	Share float64 `json:"share"`
}

// Compare makes the frame of a snapshot. Rates come from the growth of counters since before, which is nil for the
// first frame.
func Compare(before, now *Snapshot) *Frame {
	if before != nil && (!before.Gateway.Started.Equal(now.Gateway.Started) || before.Gateway.PID != now.Gateway.PID) {
		before = nil // another process, whose counters began at 0
	}
	i := interval{}
	if before != nil {
		i.seconds = now.At.Sub(before.At).Seconds()
	}
	g := &now.Gateway
	f := &Frame{Time: now.At, Functions: []Function{}, Models: []Model{}, Gateway: Gateway{
		Version: g.Version, Started: g.Started, Ready: g.Ready, Draining: g.Draining,
		Inflight: g.Inflight, CacheOn: g.Cache != nil, Revision: g.Revision, Replicas: g.Replicas,
	}}
	if g.Store != nil {
		f.Gateway.Store, f.Gateway.StoreAway = g.Store.Name, g.Store.Away
	}
	for _, s := range g.Sources {
		f.Gateway.Problems += len(s.Problems)
	}
	i.functions(f, before, now)
	i.models(f, before, now)
	f.Gateway.CacheHits = cacheHits(before, now)
	return f
}

// interval is the time between two polls, in which counters grew. It is 0 if there is no earlier poll.
type interval struct{ seconds float64 }

// perSecond is nil if there is no interval or the counter started over.
func (i interval) perSecond(before, now uint64) *float64 {
	if i.seconds <= 0 || now < before {
		return nil
	}
	rate := float64(now-before) / i.seconds
	return &rate
}

func (i interval) functions(f *Frame, before, now *Snapshot) {
	previous := map[string]*api.FunctionStatus{}
	if before != nil {
		for k := range before.Functions {
			previous[before.Functions[k].Spec.Name] = &before.Functions[k]
		}
	}
	for k := range now.Functions {
		s := &now.Functions[k]
		row := Function{Name: s.Spec.Name, Ready: s.Ready, RateStatus: s.Rate, Policy: s.Spec.Policy.Name, Shares: []Share{}}
		if p := previous[s.Spec.Name]; p != nil {
			row.ErrorsPerSecond, row.DefaultsPerSecond = i.perSecond(unanswered(p), unanswered(s)), i.perSecond(p.Defaults, s.Defaults)
		}
		for _, ref := range s.Spec.Models {
			row.Shares = append(row.Shares, Share{Candidate: ref})
		}
		if s.Policy != nil && len(row.Shares) > 1 {
			for _, c := range s.Policy.Candidates {
				if at := slices.IndexFunc(row.Shares, func(o Share) bool { return o.Candidate == c.Ref }); at >= 0 {
					row.Shares[at].Share = &c.Share
				}
			}
		}
		f.Gateway.QueriesPerSecond += s.Rate.QueriesPerSecond
		f.Functions = append(f.Functions, row)
	}
}

// unanswered counts the queries that got neither a prediction nor a default.
func unanswered(s *api.FunctionStatus) uint64 {
	_, n := api.CountQueries(s.Queries)
	return n - min(s.Defaults, n)
}

func (i interval) models(f *Frame, before, now *Snapshot) {
	previous := map[api.ModelID]*api.ModelStatus{}
	if before != nil {
		for k := range before.Models {
			previous[before.Models[k].Spec.ID()] = &before.Models[k]
		}
	}
	arms := map[api.ModelID][]Arm{}
	for k := range now.Traffic {
		t := &now.Traffic[k]
		for _, a := range t.Arms {
			id := api.ModelID{Name: t.Spec.Model, Version: a.Version}
			arms[id] = append(arms[id], Arm{a.Rule, a.Share})
		}
	}
	for k := range now.Models {
		m := &now.Models[k]
		id := m.Spec.ID()
		row := Model{
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
		if p := previous[id]; p != nil {
			row.MeanBatch, row.Busy = i.batches(p, m)
		}
		f.Models = append(f.Models, row)
	}
}

// batches compares what the replicas of a version evaluated.
func (i interval) batches(before, now *api.ModelStatus) (meanBatch, busy *float64) {
	if i.seconds <= 0 {
		return nil, nil
	}
	previous := make(map[uint64]*api.ReplicaStatus, len(before.Replicas))
	for k := range before.Replicas {
		previous[before.Replicas[k].ID] = &before.Replicas[k]
	}
	batches, queries, micros, ready := 0.0, 0.0, 0.0, 0
	for k := range now.Replicas {
		r := &now.Replicas[k]
		if r.State == api.ReplicaReady {
			ready++
		}
		b, q := r.Batches, r.Queries
		// The counters belong to a process: smaller ones mean that it is a new process.
		if p := previous[r.ID]; p != nil && p.PID == r.PID && p.Batches <= b && p.Queries <= q {
			b, q = b-p.Batches, q-p.Queries
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
		fraction := min(1, micros/1e6/i.seconds/float64(ready))
		busy = &fraction
	}
	return meanBatch, busy
}

// cacheHits is the prediction cache's hit rate since the previous poll. It is nil if there were no look-ups, or if a
// model was deleted and took its counters with it.
func cacheHits(before, now *Snapshot) *float64 {
	if before == nil {
		return nil
	}
	sum := func(s *Snapshot) (hits, all uint64) {
		for k := range s.Models {
			if c := s.Models[k].Cache; c != nil {
				hits += c.Hits + c.Coalesced
				all += c.Hits + c.Coalesced + c.Misses
			}
		}
		return hits, all
	}
	hitsBefore, allBefore := sum(before)
	hitsNow, allNow := sum(now)
	if hitsNow < hitsBefore || allNow <= allBefore {
		return nil
	}
	fraction := min(1, float64(hitsNow-hitsBefore)/float64(allNow-allBefore))
	return &fraction
}
