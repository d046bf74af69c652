package query

import (
	"fmt"
	"sort"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/drift"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// Table is everything that a request can address. A table is never changed: the composition publishes another one.
type Table struct {
	Functions map[string]*Function
	// Unlinked are the functions without models.
	Unlinked map[string]*Unlinked
	// Models maps a name to its serving version, Versions every version by its id; labels are versions there too.
	Models   map[string]*Model
	Versions map[api.ModelID]*Model
	// Routes and Tees are the rules of models that are addressed by name, by that name.
	Routes map[string]*Route
	Tees   map[string][]Tee
}

// seal computes what follows from the rest of a table.
func (t *Table) seal() {
	for _, fn := range t.Functions {
		fn.ruled = 0
		for i := range fn.Candidates {
			if fn.Candidates[i].Route != nil {
				fn.ruled = fn.ruled.With(i)
			}
		}
	}
}

// model finds a model's serving version, or the version or label that is named.
func (p *Path) model(t *Table, name, version string) (*Model, error) {
	m := t.Models[name]
	if version != "" {
		m = t.Versions[api.ModelID{Name: name, Version: version}]
	}
	if m == nil {
		if version != "" {
			name += "@" + version
		}
		return nil, p.unknown("model", name, "")
	}
	return m, nil
}

// unknown is the error for a name that is not in the table. Before the declarations have been read, nothing can be said about names.
func (p *Path) unknown(kind, name, hint string) error {
	if p.cfg.Unread != nil {
		if why := p.cfg.Unread(); why != "" {
			return api.Errorf(api.Unavailable, "%s %q is not known yet: %s", kind, name, why)
		}
	}
	return api.Errorf(api.NotFound, "no %s %q%s", kind, name, hint)
}

// versions are the versions of a model, in their order, without labels.
func (t *Table) versions(name string) []string {
	var list []string
	for id, m := range t.Versions {
		if id.Name == name && id == m.ID {
			list = append(list, id.Version)
		}
	}
	sort.Slice(list, func(i, j int) bool { return api.CompareVersions(list[i], list[j]) < 0 })
	return list
}

// Lane takes the queries of one model version. SubmitAll never blocks and does not keep the slice after it returns; results go to
// the items' owners. With a cork, which may be nil, the lane may begin when the caller releases that.
type Lane interface {
	SubmitAll(items []*scheduler.Item, cork *Cork)
	Cancel(it *scheduler.Item)
	// GiveBack calls TakeBack of the owners of waiting queries that give accepts. give must not call the lane.
	GiveBack(give func(*scheduler.Item) bool)
}

// Model is one model version that can be asked.
type Model struct {
	ID        api.ModelID
	Signature api.Signature
	Lane      Lane
	// Direct is the sub-queue of requests that address the model itself.
	Direct int32
	// Wake asks for a replica. It is called for each query that finds none and must not block. Nil: nothing can start one.
	Wake func()
	// Reserve returns memory of one of its replicas for an input of n bytes, as that of [worker.Reserver]. It must not block. Nil: there is
	// never any.
	Reserve func(n int, give func(api.Slot) bool) (_ api.Slot, waits bool)
	// Asleep: the model has no replica because it gets no queries. A query wakes it.
	Asleep atomic.Bool
	// Ready counts the connected replicas. With none, queries may wait ColdStart for the first one.
	Ready     atomic.Int32
	ColdStart time.Duration
	// Streams says that the model answers in streams. It does not change.
	Streams bool
	// Task is [api.ModelSpec.Task].
	Task string
	// Sticky: queries with the same context go to the same replica.
	Sticky atomic.Bool
	// StartNanos is how long starts of replicas take, as measured; 0: there was none. Queries that a start is too slow for are told
	// to come again after it.
	StartNanos atomic.Int64
	// Down: no replica is ready, and none is about to be.
	Down atomic.Bool
	// Closed versions answer no queries but those of [Path.Ask]: they are not loaded, or have not been validated yet.
	Closed atomic.Bool
	// ClosedAs is why a Closed version answers nothing. Callers that address it are told.
	ClosedAs atomic.Uint32
	// Cache keeps the model's predictions, while CacheOn; nil: it has none.
	Cache   *cache.Model
	CacheOn atomic.Bool
	// CapabilitiesKnown: a worker has declared the model's capabilities. Until then nothing is cached, because the model may see contexts.
	CapabilitiesKnown atomic.Bool
	// Contextual models see the caller's context, which is then a part of the cache key. Teachable models learn from labels, which
	// Teach sends to every replica; their predictions change and are not cached. Both are capabilities that workers declare.
	Contextual, Teachable atomic.Bool
	Teach                 func(inputs []api.Value, context, label []byte)
	// Stats count the requests that address the model itself, not those through functions.
	Stats *obs.Endpoint
	// Judged sums the losses of its predictions that feedback has named, through any function.
	Judged obs.Loss
	// Drift compares what is served with what was validated; nil: there is nothing to compare with.
	Drift atomic.Pointer[drift.Watch]
	// Recent collects queries for a version that is about to take the model's place; nil: there is none.
	Recent atomic.Pointer[Recent]

	ref string
}

// NewModel makes a model. The caller may set its exported fields until it publishes the model in a table.
func NewModel(id api.ModelID, sig api.Signature, lane Lane, direct int32, stats *obs.Endpoint) *Model {
	return &Model{ID: id, Signature: sig, Lane: lane, Direct: direct, Stats: stats, ref: id.String()}
}

// Reasons for [Model.Closed], in ClosedAs.
const (
	// Unloaded: it is declared, and the model's traffic rules do not have it loaded.
	Unloaded uint32 = iota
	// Unproved: it is loading and answers once it has been warmed up and validated.
	Unproved
	// Rejected: it has not passed.
	Rejected
)

// whyClosed explains to a caller that addresses a Closed version why it does not answer, and what to do.
func (m *Model) whyClosed() string {
	switch m.ClosedAs.Load() {
	case Unproved:
		return fmt.Sprintf("model %s answers when it has been warmed up and validated: `xebec wait model %s` waits until then", m.ref, m.ref)
	case Rejected:
		return fmt.Sprintf("model %s was rejected and answers no queries: `xebec describe model %s` says why", m.ref, m.ID.Name)
	}
	return fmt.Sprintf("model %s is declared but not loaded: `xebec traffic %s --label NAME=%s` keeps it loaded under another name, `xebec traffic %s --all` keeps all versions loaded, and `xebec promote %s` lets it serve",
		m.ref, m.ID.Name, m.ID.Version, m.ID.Name, m.ref)
}

// Ref is "name@version", as answers have it.
func (m *Model) Ref() string { return m.ref }

// Available reports whether the model answers queries: it has a replica, or a query wakes one.
func (m *Model) Available() bool { return !m.Closed.Load() && (m.Ready.Load() > 0 || m.Asleep.Load()) }

// serves reports whether a query would be evaluated at once.
func (m *Model) serves() bool { return m.Ready.Load() > 0 && !m.Closed.Load() }

// down reports whether the model has no replica and is about to get none.
func (m *Model) down() bool { return m.Ready.Load() == 0 && m.Down.Load() }

// wake asks for a replica.
func (m *Model) wake() {
	if m.Wake != nil && !m.Closed.Load() {
		m.Wake()
	}
}

// wakeIfEmpty asks for a replica if there is none. Call it after the query is in the lane: the gateway looks at the lane after it has taken
// the last replica away, so one of the two sees the other. Queries that the cache answers need no replica.
func (m *Model) wakeIfEmpty() {
	if m.Ready.Load() == 0 {
		m.wake()
	}
}

// servesOrWakes is serves, and asks for a replica for later queries if there is none.
func (m *Model) servesOrWakes() bool {
	m.wakeIfEmpty()
	return m.serves()
}

// usableCache is the model's cache; nil if its predictions must not be cached.
func (m *Model) usableCache() *cache.Model {
	if m.Cache == nil || !m.CacheOn.Load() || !m.CapabilitiesKnown.Load() || m.Teachable.Load() {
		return nil
	}
	return m.Cache
}

// Function is one function as the path sees it. It is immutable once published; its counters and learned state are kept when it is
// replaced.
type Function struct {
	Name      string
	SLO       time.Duration
	ColdStart time.Duration
	// Default is the JSON of the default output; nil when the function has none. The path does not look into it.
	Default []byte
	// CORS says which pages may call the function from a browser; nil: none of another origin. The path does not look into it.
	CORS *api.CORSSpec
	// MinConfidence is the confidence below which an answer is replaced by Default; 0: none.
	MinConfidence float64
	// Candidates are the models that may answer the function's queries; all of them have the same signature.
	Candidates []Candidate
	// Choice is the plan for the function; nil: no limits.
	Choice Choice
	// Selects says that Selector chooses the candidates for each query: one or, with Mode Several, any number. Otherwise Choice picks
	// a candidate for each request. Selector learns from feedback in both cases.
	Selects  bool
	Mode     selection.Mode
	Selector Selector
	// Needs is what the policy wants to see of queries; nothing else is prepared for it.
	Needs selection.Needs
	// Label is 1 plus the index of the output that feedback is about, and by which predictions are compared; 0: all outputs.
	Label int
	// Loss is how far a numeric prediction is from a label.
	Loss selection.Loss
	// Averages are for functions whose numeric output is averaged or judged by its distance; nil: outputs are labels.
	Averages *Averages
	// Shadows also get part of the queries, and are compared with the answer; Tees are compared with their own candidate.
	Shadows []Shadow
	Tees    []Tee
	// Log takes a sample of the queries; nil: none.
	Log   *inferlog.Stream
	Stats *obs.Endpoint
	// Learning counts feedback and ensemble members, Losses what feedback has said of each candidate.
	Learning *obs.Learning
	Losses   []obs.Loss

	ruled selection.Set // candidates with a Route
}

// Candidate is a model that may answer a function's queries, through sub-queue Queue of its lane.
type Candidate struct {
	Model *Model
	Queue int32
	// Route gives some of the candidate's queries to another version; nil: none.
	Route *Route
}

// Shadow is a model that sees a part of a function's queries and answers none.
type Shadow struct {
	Candidate
	Part float64 // of the queries, from 0 to 1
	// Choice has the model as its only member; nil: no limits.
	Choice Choice
}

// Selector is a policy with what it has learned: *learned.Function is one.
type Selector interface {
	Select(context []byte, q *selection.Query, out *selection.Selection)
	Combine(context []byte, c *selection.Combination)
	Observe(context []byte, f *selection.Feedback)
}

// Choice is what the scheduler's plan says of a function: *driver.Choice is one. Which methods are called follows from how the
// function's models are chosen.
type Choice interface {
	// Pick is the index of the candidate that the next request goes to; -1: it is to be refused. For functions that do not select.
	Pick() int
	// CountRefused counts refused queries.
	CountRefused(queries int)
	// Members are the candidates that the next query may ask, for policies that ask several. CountArrived counts the queries that need
	// any.
	Members() uint64
	CountArrived(queries int)
	// Limits writes to dst what part of the policy's wish for each candidate there is room for, and returns it; nil: all. ShouldRefuse
	// says that the next query is to be refused. Wish counts the candidate that the policy would have asked. For policies that ask
	// one.
	Limits(dst []float64) []float64
	ShouldRefuse() bool
	CountWish(candidate int)
}

// DefaultColdStart is how long a query waits for a sleeping model if its function declares no cold start and has no default to answer
// with sooner. An interpreter with large libraries takes about that long to start.
const DefaultColdStart = 10 * time.Second //xebec:limit wait for a sleeping model when the function has neither a default nor `cold_start`

// coldStart is how long a query of the function may wait for the model's first replica.
func (fn *Function) coldStart(m *Model) time.Duration {
	if fn.ColdStart > 0 || fn.Default != nil || m.Down.Load() {
		return fn.ColdStart
	}
	return DefaultColdStart
}

// defaultsAtOnce functions answer with their default when no candidate has a replica: there is nothing to wait for.
func (fn *Function) defaultsAtOnce() bool { return fn.Default != nil && fn.ColdStart == 0 }

// hasTeachable reports whether a candidate learns from labels, and therefore needs the inputs that they belong to.
func (fn *Function) hasTeachable() bool {
	for i := range fn.Candidates {
		c := &fn.Candidates[i]
		if c.Model.Teachable.Load() || c.Route != nil && c.Route.Model.Teachable.Load() {
			return true
		}
	}
	return false
}

// serves reports whether a version that the candidate stands for has a replica.
func (c *Candidate) serves() bool {
	return c.Model.serves() || c.Route != nil && c.Route.Model.serves()
}

// pick chooses the candidate for a request of a function that does not select. The plan refuses the request if it has no room for it.
// A candidate without a replica is passed over for the first one that has any: the plan follows only some milliseconds later.
func (fn *Function) pick() (candidate int, refused bool) {
	if fn.Selects {
		return 0, false
	}
	i := 0
	if fn.Choice != nil {
		i = fn.Choice.Pick()
	}
	if i < 0 || i >= len(fn.Candidates) {
		return 0, true
	}
	if len(fn.Candidates) > 1 && !fn.Candidates[i].serves() {
		fn.Candidates[i].Model.wake() // for later queries
		for other := range fn.Candidates {
			if fn.Candidates[other].serves() {
				return other, false
			}
		}
	}
	return i, false
}

func (fn *Function) candidateNames() string {
	var b []byte
	for i := range fn.Candidates {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, fn.Candidates[i].Model.ID.String()...)
	}
	return string(b)
}
