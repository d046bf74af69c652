package functions

import (
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Config is what Functions need of the gateway.
type Config struct {
	Path    *query.Path
	Learned *learned.Table
	// Epoch makes the plans; nil: planning is off.
	Epoch   *driver.Epoch
	Devices map[string]*driver.Device
	// NextKey returns a number that no other function or version has.
	NextKey func() uint64
	// Inferences is the inference log; nil: none is kept.
	Inferences *inferlog.Log
	// Judged is what an earlier process knew from feedback of a version: labels, the sum of their losses, and when the last came. It is called
	// with locks held. Nil: nothing is known.
	Judged func(*deployment.Deployment) (labels, losses float64, at time.Time)
}

// Functions has all declared functions, with what they count and have learned.
type Functions struct {
	cfg Config

	mu      sync.Mutex
	all     map[string]*function
	orphans []deployment.Orphan // sub-queues of deleted functions, until the next table is published
	planned *driver.Topology    // what the epoch was told last
}

// function is a declared function. Guarded by Functions.mu.
type function struct {
	spec   api.FunctionSpec
	source string        // as a version's
	stats  *obs.Endpoint // outlives changes of the spec
	rate   *obs.Rate
	key    uint64
	choice *driver.Choice // among its candidates; nil until it has any
	lanes  []*driver.Lane // of the candidates that choice is for

	policy   selection.Policy
	learned  *learned.Function
	learning *obs.Learning
	declared []string // the candidates that losses and averages are of
	losses   []obs.Loss
	averages *query.Averages // nil: outputs are labels
	worth    *worth          // nil: the policy is not prefer
	shadows  map[string]*shadow
}

// shadow is a model that sees a part of a function's queries. To the planner it is a function of its own, with the least weight.
type shadow struct {
	key    uint64
	choice *driver.Choice
	lane   *driver.Lane // that choice is for
}

// New makes Functions without any.
func New(cfg Config) *Functions { return &Functions{cfg: cfg, all: map[string]*function{}} }

// Declared is one declared function.
type Declared struct {
	Spec   *api.FunctionSpec // not to be changed
	Source string            // versions.Applied, or a watched directory
}

// Get returns a function's declaration.
func (fs *Functions) Get(name string) (d Declared, ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.all[name]
	if f == nil {
		return d, false
	}
	return f.declaration(), true
}

// Names are the names of all functions, sorted.
func (fs *Functions) Names() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return sortedNames(fs.all)
}

// Each calls do for every function, by name.
func (fs *Functions) Each(do func(name string, d Declared)) {
	for _, name := range fs.Names() {
		if d, ok := fs.Get(name); ok {
			do(name, d)
		}
	}
}

// Len is the number of functions.
func (fs *Functions) Len() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.all)
}

func (f *function) declaration() Declared {
	spec := f.spec
	return Declared{&spec, f.source}
}

// PolicyOf makes the policy that a function declares. The error has the paths of the function's fields. The policy of a function
// without models has one candidate: it only shows that the parameters are right.
func PolicyOf(f *api.FunctionSpec) (selection.Policy, error) {
	if len(f.Models) == 0 {
		return selection.New(f.Policy.Name, f.Policy.Params, []string{""})
	}
	return selection.New(f.Policy.Name, f.Policy.Params, f.Models)
}

// Put declares a function, new or changed. What it counts, and what its policy has learned of candidates that stay, is kept.
// The catalog's lock is held, and Settle follows.
func (fs *Functions) Put(s *versions.State, spec api.FunctionSpec, source string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := &function{stats: new(obs.Endpoint), rate: new(obs.Rate), key: fs.cfg.NextKey()}
	if old := fs.all[spec.Name]; old != nil {
		*f = *old
		for _, v := range s.Versions() {
			v.Weigh(spec.Name, spec.Weight)
		}
	}
	f.spec, f.source = spec, source
	fs.all[spec.Name] = f
	return fs.learn(f)
}

// learn gives a function its policy, counters and shadows.
func (fs *Functions) learn(f *function) error {
	p, err := PolicyOf(&f.spec)
	if err != nil {
		return err
	}
	f.policy, f.learned = p, nil
	if len(f.spec.Models) == 0 {
		fs.cfg.Learned.Forget(f.spec.Name)
	} else {
		f.learned = fs.cfg.Learned.Declare(f.spec.Name, p, f.spec.Models)
	}
	f.lanes = nil // the candidates may have changed
	if !slices.Equal(f.declared, f.spec.Models) {
		f.declared, f.losses, f.averages, f.worth = f.spec.Models, make([]obs.Loss, len(f.spec.Models)), nil, nil
	}
	if f.spec.Policy.Name != api.PolicyPrefer {
		f.worth = nil
	} else if f.worth == nil || len(f.worth.all) != len(f.spec.Models) {
		f.worth = newWorth(len(f.spec.Models))
	}
	if f.learning == nil {
		f.learning = new(obs.Learning)
	}
	shadows := make(map[string]*shadow, len(f.spec.Shadow))
	for ref := range f.spec.Shadow {
		if shadows[ref] = f.shadows[ref]; shadows[ref] == nil {
			shadows[ref] = &shadow{key: fs.cfg.NextKey()}
		}
	}
	f.shadows = shadows
	return nil
}

// Drop forgets a function and what it has learned. Its sub-queues are removed once no table has them. The catalog's lock is
// held, and Settle follows.
func (fs *Functions) Drop(s *versions.State, name string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.all, name)
	for _, v := range s.Versions() {
		for _, queue := range []string{name, shadowName(name)} {
			if o, ok := v.DetachQueue(queue); ok {
				fs.orphans = append(fs.orphans, o)
			}
		}
	}
	fs.cfg.Learned.Forget(name)
	fs.cfg.Path.Forget(name)
}

// Uses lists the models that functions use.
func (fs *Functions) Uses() []versions.Use {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	uses := make([]versions.Use, 0, len(fs.all))
	for _, f := range fs.all {
		for _, ref := range f.spec.Refs() {
			uses = append(uses, versions.Use{Ref: ref, SLO: f.spec.SLO, Weight: f.spec.Weight})
		}
	}
	return uses
}

// selects reports whether the policy chooses for each query. The others leave the choice to the plan.
func (f *function) selects() bool {
	return f.spec.Policy.Name != api.PolicySingle && f.spec.Policy.Name != api.PolicyPrefer
}

// mode is how the planner sees the function.
func (f *function) mode() planner.Mode {
	switch {
	case !f.selects():
		return planner.One
	case f.policy.Mode() == selection.Several:
		return planner.All
	}
	return planner.Shares
}

// lossOf is how far a function's predictions are from labels. averages is nil where outputs are labels.
func (f *function) lossOf(sig api.Signature) (loss selection.Loss, averages *query.Averages) {
	label := f.spec.LabelIndex(sig.Outputs)
	spec := f.spec.Loss.For(f.spec.Judged(sig.Outputs))
	if !spec.Numeric() {
		return loss, nil
	}
	averages = f.averages
	if averages == nil || !averages.Fits(sig, label) || averages.Candidates() != len(f.spec.Models) {
		averages = query.NewAverages(sig, label, len(f.spec.Models))
	}
	if averages == nil {
		return loss, nil
	}
	averages.SetTolerance(spec.Tolerance)
	loss.Kind, _ = selection.LossKindOf(spec.Kind)
	loss.Scale = spec.Scale
	return loss, averages
}

// gains tells the planner what the function has learned of its candidates: under overload the least useful goes first. Nil: there
// is only one.
func (f *function) gains() func([]float64) {
	if w, losses := f.worth, f.losses; w != nil {
		return func(gains []float64) {
			if len(gains) == len(losses) {
				w.write(losses, time.Now(), gains)
			}
		}
	}
	if !f.selects() {
		return nil
	}
	return f.learned.Gains
}

// log is the function's stream of the inference log; nil: none.
func (fs *Functions) log(f *function, sig api.Signature) *inferlog.Stream {
	if fs.cfg.Inferences == nil || f.spec.Log == nil || f.spec.Log.Sample == 0 {
		return nil
	}
	return fs.cfg.Inferences.Function(f.spec.Name, sig.Inputs, sig.Outputs, f.spec.Log.Sample)
}

// queue is the function's sub-queue at a version.
func (f *function) queue(v *versions.Version) int32 { return v.Queue(f.spec.Name, f.spec.Weight) }

// shadowQueue is the sub-queue of the queries for which a version is the function's shadow.
func (f *function) shadowQueue(v *versions.Version) int32 {
	return v.Queue(shadowName(f.spec.Name), api.MinWeight)
}

// shadowName is the name of a function's shadows among functions. No function can have it.
func shadowName(function string) string { return function + " (shadow)" }

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
