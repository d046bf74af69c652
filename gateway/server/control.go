package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

var errStopping = api.Errorf(api.ShuttingDown, "the gateway is stopping: nothing can be changed any more")

// judgeLocked says what each object of the set would become, or why the set cannot be.
func (s *Server) judgeLocked(set *manifest.Set) ([]api.Change, error) {
	var changes []api.Change
	models := make(map[string][]*api.ModelSpec, len(s.models)+len(set.Models)) // all versions by name, as they would be
	declared := make(map[api.ModelID]bool, len(set.Models))
	for i := range set.Models {
		m := &set.Models[i]
		if declared[m.ID()] {
			return nil, refuse(set, api.KindModel, i, api.InvalidArgument, errors.New("is declared twice"))
		}
		c := api.Change{Kind: api.KindModel, Name: m.Name, Version: m.Version, Action: api.Created}
		if m.Device != "" && s.devices[m.Device] == nil {
			return nil, refuse(set, api.KindModel, i, api.InvalidArgument, api.FieldErrors{{Path: "device", Message: fmt.Sprintf("there is no device %q here: expected %s", m.Device, s.deviceNames())}})
		}
		if f := s.families[m.Name]; f != nil && f.source != sourceApply && len(f.versions) > 0 {
			return nil, refuse(set, api.KindModel, i, api.Conflict, comesFrom(f, s.models[m.ID()], m))
		}
		if d := s.models[m.ID()]; d != nil {
			c.Action = api.Unchanged
			m.Dir = d.spec().Dir // a manifest may be applied again from anywhere
			if field := d.spec().Fixed(m); field != "" {
				return nil, refuse(set, api.KindModel, i, api.Conflict, api.FieldErrors{{Path: field, Message: "the version exists and has another " + field + ": a version never changes; declare a new version, or delete this one first"}})
			}
			if !reflect.DeepEqual(*d.spec(), *m) || d.life.state == registry.Rejected { // its files may have been mended
				c.Action = api.Updated
			}
		}
		if err := s.capacity.fits(m); err != nil && c.Action != api.Unchanged {
			if s.serving.Load() {
				return nil, refuse(set, api.KindModel, i, api.InvalidArgument, err)
			}
			s.log.Error("a model cannot run here, and is declared all the same: at the start what serves goes first", zap.Stringer("model", m.ID()), zap.Error(err))
		}
		declared[m.ID()] = true
		models[m.Name] = append(models[m.Name], m)
		changes = append(changes, c)
	}
	for id, d := range s.models {
		if !declared[id] {
			models[id.Name] = append(models[id.Name], d.spec())
		}
	}
	traffic := map[string]*api.TrafficSpec{} // by model, as it would be
	for name, f := range s.families {
		if f.traffic != nil {
			traffic[name] = f.traffic
		}
	}
	for i := range set.Traffic {
		traffic[set.Traffic[i].Model] = &set.Traffic[i]
	}
	replaced := map[string]bool{}
	for i := range set.Functions {
		f := &set.Functions[i]
		if replaced[f.Name] {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, errors.New("is declared twice"))
		}
		replaced[f.Name] = true
		if err := checkCandidates(f, models, traffic); err != nil {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, err)
		}
		if _, err := policyOf(f); err != nil {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, err)
		}
		c := api.Change{Kind: api.KindFunction, Name: f.Name, Action: api.Created}
		if old := s.functions[f.Name]; old != nil && old.source == sourceApply {
			c.Action = api.Updated
			if reflect.DeepEqual(old.spec, *f) {
				c.Action = api.Unchanged
			}
		}
		changes = append(changes, c)
	}
	changes, err := s.judgeTrafficLocked(set, changes, models) // first: it knows of labels that functions name
	if err != nil {
		return nil, err
	}
	named := map[string]bool{} // models of which the set says something
	for i := range set.Models {
		named[set.Models[i].Name] = true
	}
	for i := range set.Traffic {
		named[set.Traffic[i].Model] = true
	}
	return changes, s.judgeOthersLocked(named, replaced, models, traffic)
}

// judgeOthersLocked judges what is not declared anew against what is: models of the names in named are as in models now. What was wrong
// before is nobody's fault now.
func (s *Server) judgeOthersLocked(named, replaced map[string]bool, models map[string][]*api.ModelSpec, traffic map[string]*api.TrafficSpec) error {
	before := s.declaredLocked()
	for name := range named {
		t := before.traffic[name]
		if t == nil || t != traffic[name] || checkTraffic(t, before.models[name]) != nil {
			continue
		}
		if err := checkTraffic(t, models[name]); err != nil {
			return api.Errorf(api.InvalidArgument, "traffic of %s: %w", name, err)
		}
	}
	for name, f := range s.functions {
		if replaced[name] || !usesAny(&f.spec, named) || checkCandidates(&f.spec, before.models, before.traffic) != nil {
			continue
		}
		if err := checkCandidates(&f.spec, models, traffic); err != nil {
			return api.Errorf(api.InvalidArgument, "function %s: %w", name, err)
		}
	}
	return nil
}

// usesAny reports whether the function names one of the models.
func usesAny(f *api.FunctionSpec, models map[string]bool) bool {
	return slices.ContainsFunc(f.Refs(), func(ref string) bool {
		name, _, _ := strings.Cut(ref, "@")
		return models[name]
	})
}

// refuse says what is wrong with object i of the set, and where it was written.
func refuse(set *manifest.Set, kind api.Kind, i int, code api.Code, err error) error {
	return api.Errorf(code, "%w", set.Refuse(kind, i, err))
}

// checkCandidates judges a function against all versions that its models may mean. The error is nil or api.FieldErrors.
func checkCandidates(f *api.FunctionSpec, models map[string][]*api.ModelSpec, traffic map[string]*api.TrafficSpec) error {
	var errs api.FieldErrors
	refs := f.Refs()
	candidates := make([][]*api.ModelSpec, len(refs))
	for i, ref := range refs {
		at := fmt.Sprintf("models[%d]", i)
		if i >= len(f.Models) {
			at = "shadow." + ref
		}
		id, err := api.ParseModelRef(ref)
		if err != nil {
			return api.FieldErrors{{Path: at, Message: err.Error()}}
		}
		version := versionOf(id, models[id.Name], traffic[id.Name])
		for _, m := range models[id.Name] {
			if version != "" && version != m.Version {
				continue
			}
			candidates[i] = append(candidates[i], m)
			var found api.FieldErrors
			if i < len(f.Models) && errors.As(f.CheckModel(m), &found) {
				errs = append(errs, found...)
			}
		}
		if candidates[i] == nil {
			errs = append(errs, api.FieldError{Path: at, Message: fmt.Sprintf("there is no model %s: declare it in the same manifest or before", ref)})
		}
	}
	var found api.FieldErrors
	if errors.As(f.CheckCandidates(candidates), &found) {
		errs = append(errs, found...)
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// versionOf is the version that a reference names, by its name or by a label; empty where it names none.
func versionOf(id api.ModelID, models []*api.ModelSpec, traffic *api.TrafficSpec) string {
	if id.Version == "" || traffic == nil {
		return id.Version
	}
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Version
	}
	if v, ok := registry.Resolve(traffic, names, id.Version); ok {
		return v
	}
	return id.Version
}

// updateLocked gives a version what may change of its spec. One that was rejected is tried again: it has been declared anew.
func (s *Server) updateLocked(d *deployment, spec api.ModelSpec) error {
	was := d.spec()
	d.current.Store(&spec)
	d.model.CacheOn.Store(spec.Cache == api.CacheOn)
	s.touchLocked(d.id.Name)
	switch d.life.state {
	case registry.Loading:
		s.capacity.load(d, s.wantedLocked(s.families[d.id.Name], d))
	case registry.Available:
		s.capacity.rebound(d)
	case registry.Validating:
		if !reflect.DeepEqual(was.Warmup, spec.Warmup) || !reflect.DeepEqual(was.Validation, spec.Validation) {
			s.qualify(d) // by what is declared now
		}
		s.capacity.load(d, s.wantedLocked(s.families[d.id.Name], d))
	case registry.Rejected:
		d.life.anew = true
	}
	return nil
}

// Deploy declares the model of a model directory and a function of its name, unless there is one.
func (s *Server) Deploy(ctx context.Context, dir string) ([]api.Change, error) {
	set, err := loadModelDir(dir)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%w", err)
	}
	return s.change(ctx, false, func() (*edit, error) {
		with, err := s.withImpliedLocked(*set)
		if err != nil {
			return nil, err
		}
		return s.planApplyLocked(ctx, with)
	})
}

// withImpliedLocked adds a function of each model's name, unless there is one by now.
func (s *Server) withImpliedLocked(set manifest.Set) (*manifest.Set, error) {
	set.Models, set.Functions = slices.Clone(set.Models), slices.Clone(set.Functions) // a plan may be made again, of what was given
	for _, m := range set.Models {
		if d := s.models[m.ID()]; d != nil && d.spec().Dir != m.Dir {
			return nil, api.Errorf(api.Conflict, "model %s exists and lies in %s: a version never changes; give this one another version, or delete that one first", m.ID(), d.spec().Dir)
		}
		declared := s.functions[m.Name] != nil && s.functions[m.Name].source == sourceApply
		for _, f := range set.Functions {
			declared = declared || f.Name == m.Name
		}
		if !declared {
			set.Functions = append(set.Functions, implied(m.Name))
		}
	}
	return &set, nil
}

func refString(id api.ModelID) string {
	if id.Version == "" {
		return id.Name
	}
	return id.String()
}

// Gateway describes the gateway itself.
func (s *Server) Gateway(context.Context) (api.GatewayStatus, error) {
	ready, why := s.ready()
	trouble := s.storeTrouble()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := api.GatewayStatus{
		Version: s.cfg.Version, GoVersion: runtime.Version(), PID: os.Getpid(), Started: s.started,
		Listen: s.listen, Admin: s.admin, DataDir: s.cfg.DataDir, Ready: ready, Draining: s.draining.Load(),
		Models: len(s.models), Functions: len(s.functions), Inflight: s.gw.Open(), Store: s.storeStatus(),
		Sources: s.sourcesLocked(trouble), Revision: s.revision, Node: s.capacity.node(),
	}
	if s.cfg.CacheBytes > 0 {
		c := s.cache.Stats()
		g.Cache = &api.CacheStatus{
			Entries: c.Entries, Pending: c.Pending, Bytes: c.Bytes, HeldBytes: c.HeldBytes, MaxBytes: c.MaxBytes,
			Evicted: c.Evicted, Collisions: c.Collisions,
		}
	}
	for _, d := range s.models {
		g.Replicas += int(d.model.Ready.Load())
	}
	if !ready {
		g.Conditions = append(g.Conditions, api.Condition{Type: "Ready", Status: api.ConditionFalse, Reason: "Waiting", Message: why})
	}
	return g, nil
}

// Logs hands out the last lines of a model's replicas, and with Follow those that come.
func (s *Server) Logs(ctx context.Context, q admin.LogQuery, emit func(api.LogLine) error) error {
	s.mu.Lock()
	var of []*deployment
	for id, d := range s.models {
		if id.Name == q.Model && (q.Version == "" || q.Version == id.Version) {
			of = append(of, d)
		}
	}
	s.mu.Unlock()
	if len(of) == 0 {
		return api.Errorf(api.NotFound, "no model %s", refString(api.ModelID{Name: q.Model, Version: q.Version}))
	}
	lines := lastLines(of, q.Lines)
	for _, l := range lines {
		if err := emit(l); err != nil {
			return err
		}
	}
	if !q.Follow {
		return nil
	}
	return follow(ctx, of, emit)
}

// lastLines merges the logs of several versions by time.
func lastLines(of []*deployment, n int) []api.LogLine {
	var all []api.LogLine
	for _, d := range of {
		for _, l := range d.logs.Tail(n) {
			all = append(all, logLine(d.id.Version, l))
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Time.Before(all[j].Time) })
	if len(all) > n {
		all = all[len(all)-n:]
	}
	return all
}

func logLine(version string, l containers.Line) api.LogLine {
	stream := l.Stream.String()
	if l.Stream == containers.System {
		stream = "gateway"
	}
	return api.LogLine{Time: l.At, Version: version, Replica: l.Replica, Stream: stream, Text: l.Text}
}

// follow reads each version's log in a goroutine and hands everything to emit, one line at a time.
func follow(ctx context.Context, of []*deployment, emit func(api.LogLine) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []api.LogLine)
	for _, d := range of {
		go func() {
			f := d.logs.Follow(0)
			for {
				got, lost, err := f.Next(ctx)
				var out []api.LogLine
				if lost > 0 {
					out = append(out, api.LogLine{Time: time.Now(), Version: d.id.Version, Stream: "gateway", Text: lostText(lost)})
				}
				for _, l := range got {
					out = append(out, logLine(d.id.Version, l))
				}
				select {
				case lines <- out:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	for open := len(of); open > 0; {
		select {
		case out := <-lines:
			if out == nil {
				open--
			}
			for _, l := range out {
				if err := emit(l); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
