package status

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sort"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/inferlog"
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
	Store        state.Store   // nil: what is learned is lost with the gateway
	CacheBytes   int64

	Version, DataDir string
	Listen, Admin    string // addresses of the ports
	Started          time.Time
	// AcceptErrors counts the connections that each port could not take.
	AcceptErrors func() map[string]uint64
}

// Reader describes the gateway. It changes nothing.
type Reader struct {
	cfg      Config
	draining atomic.Bool
}

// New makes a Reader.
func New(cfg Config) *Reader { return &Reader{cfg: cfg} }

// SetDraining says that the gateway is stopping.
func (r *Reader) SetDraining() { r.draining.Store(true) }

// Ready is what /readyz says. The gateway is ready when every model that wants replicas has a version that may answer or has
// failed to get one, and so has every version that a function names.
func (r *Reader) Ready() (bool, string) {
	if r.draining.Load() {
		return false, "the gateway is stopping"
	}
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	if !r.cfg.Declarations.SourcesRead() {
		return false, "a watched directory of models has not been read yet"
	}
	waiting := s.Waiting()
	if len(waiting) == 0 {
		return true, ""
	}
	sort.Strings(waiting)
	if more := len(waiting) - 5; more > 0 {
		return false, fmt.Sprintf("waiting for the first replica of %v and %d more", waiting[:5], more)
	}
	return false, fmt.Sprintf("waiting for the first replica of %v", waiting)
}

// Gateway describes the gateway itself.
func (r *Reader) Gateway(context.Context) (api.GatewayStatus, error) {
	ready, why := r.Ready()
	problem := r.cfg.Declarations.StoreProblem()
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	g := api.GatewayStatus{
		Version: r.cfg.Version, GoVersion: runtime.Version(), PID: os.Getpid(), Started: r.cfg.Started,
		Listen: r.cfg.Listen, Admin: r.cfg.Admin, DataDir: r.cfg.DataDir, Ready: ready, Draining: r.draining.Load(),
		Models: s.Len(), Functions: r.cfg.Functions.Len(), Inflight: r.cfg.Path.Open(), Store: r.store(),
		Sources: r.cfg.Declarations.Sources(s, problem), Revision: r.cfg.Declarations.StoreRevision(), Node: r.cfg.Capacity.Node(),
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
	st := r.cfg.Learned.Stats()
	return &api.StoreStatus{
		Name: r.cfg.Store.Name(), Shared: r.cfg.Store.Shared(), Away: st.Unavailable, Pending: st.Pending, Lost: st.Lost,
		LastSuccess: st.LastSuccess, LastError: st.LastError, LastErrorAt: st.LastErrorAt,
	}
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
		if !r.addLife(v, &m) {
			continue // it was deleted meanwhile: a caller that edits its declaration must not declare it again
		}
		if name != "" {
			m.Logs = lastLines([]*deployment.Deployment{v.Deployment}, deployment.LogLines)
			m.Accuracy = v.Accuracy(ctx)
		}
		out = append(out, m)
	}
	if name != "" && len(out) == 0 {
		return nil, api.Errorf(api.NotFound, "no model %q", name)
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
	contexts := 0
	if name != "" {
		contexts = api.MaxStatusContexts
	}
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	out := r.cfg.Functions.Status(s, name, contexts)
	if name != "" && len(out) == 0 {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	for i := range out {
		out[i].Revision = r.cfg.Declarations.Revision(api.KindFunction, out[i].Spec.Name)
		out[i].Policy.Store = r.store()
	}
	return out, nil
}
