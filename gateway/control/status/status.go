package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/measured"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Config is what a Reader reads.
type Config struct {
	Catalog      *versions.Catalog
	Functions    *functions.Functions
	Declarations *declarations.Declarations
	Capacity     *capacity.Capacity
	Path         *query.Path
	Cache        *cache.Cache
	Learned      *learned.Table
	Clock        *driver.Clock
	Epoch        *driver.Epoch // nil: planning is off
	Inferences   *inferlog.Log // nil: none is kept
	Measured     *measured.Keeper
	Store        state.Store // nil: what is learned is lost with the gateway
	CacheBytes   int64

	// ReadyRequires are functions without which the gateway is not ready; "all": all of them.
	ReadyRequires    []string
	Version, DataDir string
	Listen, Admin    string // addresses of the ports
	GRPC             string // empty: there is no such port
	Started          time.Time
	// AcceptErrors counts the connections that each port could not take.
	AcceptErrors func() map[string]uint64
	// EdgeRefused counts the requests that each port refused before they reached a route, by reason.
	EdgeRefused func() map[string]map[string]uint64
	// Replicas counts restarts and exits by version, also of versions that are gone.
	Replicas func() []obs.ReplicaSample
	// Loops counts the system calls between clients, gateway and replicas.
	Loops func() obs.LoopSample
	// BusyPoll says whether the gateway spins; nil: it is not configured to.
	BusyPoll *api.BusyPollStatus
	// Upgrade is the upgrade that is under way, or nil.
	Upgrade func() *api.UpgradeStatus
}

// Reader describes the gateway. It changes nothing.
type Reader struct {
	cfg      Config
	draining atomic.Bool
	settled  atomic.Bool // every version that is to answer had a replica once, or failed to get one
}

// New makes a Reader.
func New(cfg Config) *Reader { return &Reader{cfg: cfg} }

// SetDraining says that the gateway is stopping.
func (r *Reader) SetDraining() { r.draining.Store(true) }

// Ready is what /readyz says. The gateway is ready when what is declared has been read and, at the start, every version that is to
// answer has its first replica or has failed to get one. After that only a stop and required functions make it unready: queries
// are accepted, and what cannot answer is for Problems.
func (r *Reader) Ready() (bool, string) {
	if ok, why := r.Loaded(); !ok {
		return false, why
	}
	if len(r.cfg.ReadyRequires) > 0 {
		if missing := r.missing(); len(missing) > 0 {
			return false, "required functions cannot answer: " + firstOf(missing)
		}
	}
	return true, ""
}

// Loaded is Ready without required functions.
func (r *Reader) Loaded() (bool, string) {
	if r.draining.Load() {
		return false, "the gateway is stopping"
	}
	if why := r.cfg.Declarations.Unread(); why != "" {
		return false, why
	}
	if !r.settled.Load() {
		if waiting := r.waiting(); len(waiting) > 0 {
			return false, "waiting for the first replica of " + firstOf(waiting)
		}
		r.settled.Store(true)
	}
	return true, ""
}

func (r *Reader) waiting() []string {
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	return s.Waiting()
}

// firstOf lists some of the names.
func firstOf(names []string) string {
	const few = 5
	sort.Strings(names)
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%v and %d more", names[:few], more)
	}
	return fmt.Sprint(names)
}

// all is the name that requires all functions.
const all = "all"

// missing returns the required functions that cannot answer, or are not declared.
func (r *Reader) missing() (missing []string) {
	_, functions := r.problems()
	required := r.cfg.ReadyRequires
	if slices.Contains(required, all) {
		required = slices.Collect(maps.Keys(functions))
	}
	for _, name := range required {
		if p, declared := functions[name]; !declared || p != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// Problems lists what is declared and cannot answer: functions first, then versions of models.
func (r *Reader) Problems() []api.ReadinessProblem {
	out, functions := r.problems()
	for _, p := range functions {
		if p != nil {
			out = append(out, *p)
		}
	}
	slices.SortFunc(out, func(a, b api.ReadinessProblem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), api.CompareVersions(a.Version, b.Version))
	})
	return out
}

// problems returns the versions that cannot answer, and every function with its problem, nil if it has none. A function can answer
// if one of its candidates has a replica or sleeps. Nothing is wrong with a model that still starts, but a function without
// another one cannot answer yet.
func (r *Reader) problems() (models []api.ReadinessProblem, functions map[string]*api.ReadinessProblem) {
	ctx := context.Background()
	versions, _ := r.Models(ctx, "")    // without a name there is
	declared, _ := r.Functions(ctx, "") // no error
	states := map[string]api.ModelState{}
	for i := range versions {
		m := &versions[i]
		id := m.Spec.ID()
		state, why := m.State, ""
		for _, c := range m.Conditions {
			if c.Status == api.ConditionFalse && c.Message != "" {
				why = c.Message
			}
		}
		states[id.String()] = state
		if state == api.ModelFailed || state == api.ModelDegraded {
			models = append(models, api.ReadinessProblem{Kind: api.KindModel, Name: id.Name, Version: id.Version, State: state, Reason: why})
		}
	}
	functions = map[string]*api.ReadinessProblem{}
	for _, f := range declared {
		p := &api.ReadinessProblem{Kind: api.KindFunction, Name: f.Spec.Name, State: api.ModelFailed, Reason: "none of its models can answer: " + strings.Join(f.Spec.Models, ", ")}
		for _, model := range f.Models {
			switch states[model] {
			case api.ModelReady, api.ModelIdle, api.ModelDegraded:
				p = nil
			case api.ModelStarting:
				if p != nil {
					p.State = api.ModelStarting
				}
			}
			if p == nil {
				break
			}
		}
		if len(f.Spec.Models) == 0 {
			p = nil // its default is all that it has been given
		}
		functions[f.Spec.Name] = p
	}
	return models, functions
}

// Gateway describes the gateway itself.
func (r *Reader) Gateway(context.Context) (api.GatewayStatus, error) {
	ready, why := r.Ready()
	problem := r.cfg.Declarations.StoreProblem()
	upgrade := r.cfg.Upgrade()
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	g := api.GatewayStatus{
		Version: r.cfg.Version, GoVersion: runtime.Version(), PID: os.Getpid(), Started: r.cfg.Started,
		Listen: r.cfg.Listen, Admin: r.cfg.Admin, GRPC: r.cfg.GRPC, DataDir: r.cfg.DataDir, Ready: ready, Draining: r.draining.Load(),
		Models: s.Len(), Functions: r.cfg.Functions.Len(), Inflight: r.cfg.Path.Open(), Store: r.store(),
		Sources: r.cfg.Declarations.Sources(s, problem), Revision: r.cfg.Declarations.StoreRevision(), Node: r.cfg.Capacity.Node(), Upgrade: upgrade, BusyPoll: r.cfg.BusyPoll,
	}
	if r.cfg.CacheBytes > 0 {
		c := r.cfg.Cache.Stats()
		g.Cache = &api.CacheStatus{
			Entries: c.Entries, Pending: c.Pending, Bytes: c.Bytes, HeldBytes: c.HeldBytes, MaxBytes: c.MaxBytes,
			Evicted: c.Evicted, Collisions: c.Collisions,
		}
	}
	for _, v := range s.Versions() {
		g.Replicas += v.Ready()
	}
	if !ready {
		g.Conditions = append(g.Conditions, api.Condition{Type: "Ready", Status: api.ConditionFalse, Reason: "Waiting", Message: why})
	}
	return g, nil
}

// store is nil when what is learned is kept nowhere.
func (r *Reader) store() *api.StoreStatus {
	if r.cfg.Store == nil {
		return nil
	}
	st := r.storeStats()
	return &api.StoreStatus{
		Name: r.cfg.Store.Name(), Shared: r.cfg.Store.Shared(), Away: st.Unavailable, Pending: st.Pending, Lost: st.Lost,
		LastSuccess: st.LastSuccess, LastError: st.LastError, LastErrorAt: st.LastErrorAt,
	}
}

// storeStats are those of what is learned. The store is also away where the declarations cannot be read from it: a gateway that
// learns nothing writes nothing.
func (r *Reader) storeStats() learned.Stats {
	st, f := r.cfg.Learned.Stats(), r.cfg.Declarations.Following()
	st.Unavailable = st.Unavailable || f.Away
	st.Errors += int64(f.Errors)
	if f.LastErrorAt.After(st.LastErrorAt) {
		st.LastError, st.LastErrorAt = f.LastError, f.LastErrorAt
	}
	if st.Unavailable && f.LastSuccess.After(st.LastSuccess) { // else LastSuccess is when something was written
		st.LastSuccess = f.LastSuccess
	}
	return st
}

// Models describes every version of every model, or those of one with their last log lines.
func (r *Reader) Models(ctx context.Context, name string) ([]api.ModelStatus, error) {
	var of []*versions.Version
	s := r.cfg.Catalog.Lock()
	for id, v := range s.Versions() {
		if name == "" || id.Name == name {
			of = append(of, v)
		}
	}
	r.cfg.Catalog.Unlock()
	sort.Slice(of, func(i, j int) bool {
		a, b := of[i].ID(), of[j].ID()
		return a.Name < b.Name || a.Name == b.Name && api.CompareVersions(a.Version, b.Version) < 0
	})
	out := make([]api.ModelStatus, 0, len(of))
	for _, v := range of {
		m := v.Deployment.Status()
		m.Measured = r.cfg.Measured.Status(v.Deployment)
		if !r.addLife(v, &m) {
			continue // it was deleted meanwhile: a caller that edits its declaration must not declare it again
		}
		if at, applied := r.cfg.Declarations.Created(api.KindModel, v.ID().String()); applied {
			m.Created = at // without this it is when this process read the declaration
		}
		if name != "" {
			m.Logs = lastLines([]*deployment.Deployment{v.Deployment}, deployment.LogLines)
			m.Accuracy = v.Accuracy(ctx)
		}
		out = append(out, m)
	}
	if name != "" && len(out) == 0 {
		return nil, r.cfg.Declarations.Unknown("model", name)
	}
	return out, nil
}

// addLife adds the version's declaration, revision and place in life, which are of one moment. It returns false if the version is
// gone.
func (r *Reader) addLife(v *versions.Version, m *api.ModelStatus) bool {
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	id := v.ID()
	if s.Version(id) != v {
		return false
	}
	m.Spec, m.Dir, m.Revision = *v.Spec(), v.Spec().Dir, r.cfg.Declarations.Revision(api.KindModel, id.String())
	f := s.Family(id.Name)
	if f == nil {
		return true
	}
	m.ServingVersion = f.InForce()
	m.Serving = m.ServingVersion == id.Version
	m.Version = f.Status(v)
	m.State = stateOf(&m.Version, m)
	if m.Version.Reason != "" {
		m.Conditions = append(m.Conditions, api.Condition{
			Type: "Serving", Status: api.ConditionFalse, Reason: string(m.Version.Phase), Message: m.Version.Reason, Since: m.Version.Since,
		})
	}
	return true
}

// stateOf is a version's state for people: that of its replicas, where it is to have any.
func stateOf(v *api.VersionStatus, m *api.ModelStatus) api.ModelState {
	switch v.Phase {
	case api.PhaseDeclared:
		return api.ModelIdle
	case api.PhaseDraining:
		return api.ModelStopping
	case api.PhaseRejected:
		return api.ModelFailed
	}
	return m.State
}

// Functions describes every function, or one with its contexts.
func (r *Reader) Functions(_ context.Context, name string) ([]api.FunctionStatus, error) {
	out := r.functions(name)
	if name != "" && len(out) == 0 {
		return nil, r.cfg.Declarations.Unknown("function", name)
	}
	return out, nil
}

func (r *Reader) functions(name string) []api.FunctionStatus {
	contexts := 0
	if name != "" {
		contexts = api.MaxStatusContexts
	}
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	out := r.cfg.Functions.Status(s, name, contexts)
	for i := range out {
		out[i].Revision = r.cfg.Declarations.Revision(api.KindFunction, out[i].Spec.Name)
		out[i].Created, _ = r.cfg.Declarations.Created(api.KindFunction, out[i].Spec.Name)
		if out[i].Policy != nil { // a function without models has none
			out[i].Policy.Store = r.store()
		}
	}
	return out
}
