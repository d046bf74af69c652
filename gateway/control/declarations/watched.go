package declarations

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
	"go.uber.org/zap"
)

const (
	// watchEvery is how often watched directories are scanned, unless configured.
	watchEvery = time.Second
	// scanWithin bounds the first scan of a watched directory, which holds up the start.
	scanWithin = 30 * time.Second //xebec:limit first scan of a watched directory, which delays the start
	// settleWithin is how long a gateway that has just started is not ready because files are still being copied to a watched
	// directory.
	settleWithin = 10 * time.Second //xebec:limit how long a starting gateway waits for files that are being copied into a watched directory
)

// Source lists versions of models, and has their files in directories, which the versions' specs name. It is for one user at a time. A
// watched directory is one, a [Store] another.
type Source interface {
	// Scan reports what there is.
	Scan() watch.Report
	// Run calls report with what there is, first and when it changes, until ctx ends.
	Run(ctx context.Context, report func(watch.Report))
}

// Store is a source that fetches versions. Its Name is for people, and no other source's.
type Store interface {
	Source
	Name() string
}

// watched is a source of models. Its fields below source are guarded by the catalog's lock.
type watched struct {
	dir      string     // the directory, or the name of the store
	scanning sync.Mutex // held by the user of source, which is for one at a time
	source   Source
	seen     bool // it has been read once
	settling bool // files are still being copied to it
	models   int
	problems []string     // those of the last report, and what else could not be taken
	last     watch.Report // the last complete one
	reported []string     // the problems of the last report and of files
	scanned  []string     // those of the last report
	taking   sync.Mutex   // held by who writes taken, and looks at files
	taken    map[api.ModelID]takenFiles
}

// watch starts to follow the directories.
func (d *Declarations) watch(ctx context.Context) {
	for _, w := range d.watching {
		go func() { // the end of the gateway does not wait for it: a file system that hangs would hold it up
			w.scanning.Lock()
			defer w.scanning.Unlock()
			w.source.Run(ctx, func(r watch.Report) { d.follow(ctx, w, r) })
		}()
		if d.cfg.Host.Snapshots != nil {
			go d.watchFiles(ctx, w, cmp.Or(d.cfg.WatchEvery, watchEvery))
		}
	}
}

// scanWatched takes in what the watched directories have now.
func (d *Declarations) scanWatched() {
	for _, w := range d.watching {
		report := make(chan watch.Report, 1)
		go func() {
			w.scanning.Lock()
			defer w.scanning.Unlock()
			report <- w.source.Scan()
		}()
		select {
		case r := <-report:
			d.follow(d.cfg.Life, w, r)
		case <-time.After(scanWithin):
			d.cfg.Log.Warn("a watched directory does not answer: the gateway starts without it", zap.String("directory", w.dir), zap.Duration("after", scanWithin))
		}
	}
}

// follow takes in what a watched directory has.
func (d *Declarations) follow(ctx context.Context, w *watched, r watch.Report) {
	d.takeFiles(ctx, w, r)
	d.declaring.Lock()
	defer d.declaring.Unlock()
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	if s.Stopping() {
		return
	}
	w.seen, w.settling, w.scanned = true, r.Settling, nil
	for _, p := range r.Problems {
		w.scanned = append(w.scanned, p.String())
	}
	d.showReported(w)
	if !r.Complete { // nothing follows from what cannot be seen
		return
	}
	w.last = r
	d.takeWatched(s, w)
	d.settle(s)
}

// reconsider looks again at directories of which not everything could be taken: the reason may be gone.
func (d *Declarations) reconsider(s *versions.State) {
	for _, w := range d.watching {
		if len(w.problems) > len(w.reported) {
			w.problems = slices.Clone(w.reported)
			d.takeWatched(s, w)
		}
	}
}

// takeWatched declares what a directory last had, and nothing else of it.
func (d *Declarations) takeWatched(s *versions.State, w *watched) {
	r := w.last
	w.models = len(r.Models)
	all := d.declared(s)
	users := map[string][]*api.FunctionSpec{} // functions by the models that they use
	d.cfg.Functions.Each(func(_ string, f functions.Declared) {
		for _, ref := range f.Spec.Refs() {
			name, _, _ := strings.Cut(ref, "@")
			users[name] = append(users[name], f.Spec)
		}
	})
	names := make([]string, 0, len(r.Models))
	for name := range r.Models {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		f := s.Family(name)
		if f != nil && len(f.Versions) > 0 && f.Source != w.dir {
			w.problems = append(w.problems, fmt.Sprintf("model %s lies in %s, and is declared by %s already: that one serves; remove one of the two", name, w.dir, sourceName(f)))
			continue
		}
		d.takeModel(s, w, name, r.Models[name], all, users[name])
	}
	for _, name := range s.FamilyNames() {
		if f := s.Family(name); f.Source == w.dir {
			if _, there := r.Models[name]; !there {
				d.takeModel(s, w, name, nil, all, users[name])
			}
		}
	}
	d.takeFunctions(s, w, r.Functions)
}

func sourceName(f *versions.Family) string {
	if f.Source == versions.Applied {
		return "apply"
	}
	return sourceKind(f.Source) + " " + f.Source
}

func sourceKind(source string) string {
	if strings.Contains(source, "://") {
		return "the store"
	}
	return "the watched directory"
}

// comesFrom returns how a model of a watched directory is changed, or a version added to it: not by applying it. v is nil for a
// new version.
func comesFrom(f *versions.Family, v *versions.Version, m *api.ModelSpec) error {
	if sourceKind(f.Source) == "the store" {
		return fmt.Errorf("the model comes from the store %s: publish another version there, or give this model another name", f.Source)
	}
	if v == nil {
		return fmt.Errorf("the model comes from the watched directory %s: put the version there, or give this model another name", f.Source)
	}
	edit := "edit"
	if v.Spec().Replicas != m.Replicas {
		edit = "edit replicas in"
	}
	return fmt.Errorf("the model comes from the watched directory %s: %s %s, which the gateway follows", f.Source, edit, filepath.Join(v.Spec().Dir, manifest.ModelFile))
}

// takeModel makes the versions of a model those that a directory has.
func (d *Declarations) takeModel(s *versions.State, w *watched, name string, specs []api.ModelSpec, all *declared, users []*api.FunctionSpec) {
	there := map[string]bool{}
	for _, spec := range specs {
		there[spec.Version] = true
		if d.cfg.Host.Snapshots != nil {
			taken := w.taken[spec.ID()]
			if spec.Digest = taken.digest; spec.Digest == "" { // why is shown
				continue
			}
			if why := keepWatchedImage(&spec, taken.image); why != "" {
				w.problems = append(w.problems, why)
			}
		}
		if v := s.Version(spec.ID()); v != nil {
			spec.Interpreter = v.Spec().Interpreter
		} else {
			spec.Interpreter = d.cfg.Host.Interpreter(&spec)
		}
		if spec.Device != "" && d.cfg.Host.Devices[spec.Device] == nil {
			w.problems = append(w.problems, fmt.Sprintf("model %s needs the device %q: expected %s", spec.ID(), spec.Device, d.cfg.Host.DeviceNames()))
			continue
		}
		if err := d.checkNetwork(&spec); err != nil {
			w.problems = append(w.problems, fmt.Sprintf("model %s in %s: %v", spec.ID(), spec.Dir, err))
			continue
		}
		v := s.Version(spec.ID())
		if v != nil && v.Gone && v.Spec().Fixed(&spec) != "" { // it was removed, and another one has its name
			s.Remove(v)
			v = nil
		}
		if v == nil {
			fresh, err := d.deployWatched(&spec, all, users)
			if err != nil {
				w.problems = append(w.problems, err.Error())
				continue
			}
			s.Adopt(fresh, w.dir)
			continue
		}
		v.Gone = false // it is there again
		if !reflect.DeepEqual(*v.Spec(), spec) {
			s.Update(v, spec)
		}
	}
	if f := s.Family(name); f != nil && f.Source == w.dir {
		for version, v := range f.Versions {
			if !there[version] && !v.Gone {
				v.Gone = true
				d.cfg.Log.Info("a version is not in its directory any more", zap.Stringer("model", v.ID()), zap.String("directory", w.dir))
			}
		}
	}
	s.Touch(name)
}

// deployWatched makes the deployment of a version that fits the functions and the traffic rules that use its model. It adds the
// version to all.
func (d *Declarations) deployWatched(spec *api.ModelSpec, all *declared, users []*api.FunctionSpec) (*deployment.Deployment, error) {
	before := all.models[spec.Name]
	after := append(slices.Clone(before), spec)
	defer func() { all.models[spec.Name] = before }()
	for _, f := range users {
		fits := func(versions []*api.ModelSpec) error {
			all.models[spec.Name] = versions
			return checkCandidates(f, all.models, all.traffic)
		}
		if fits(before) != nil { // it is not the new version's fault
			continue
		}
		if err := fits(after); err != nil {
			return nil, fmt.Errorf("model %s in %s does not fit function %s: %w", spec.ID(), spec.Dir, f.Name, err)
		}
	}
	if all.models[spec.Name] = before; len(spec.Calls) > 0 {
		with := maps.Clone(all.models)
		with[spec.Name] = after
		if _, err := d.checkCalls(all.models, with, nil); err != nil {
			return nil, fmt.Errorf("model %s in %s: %w", spec.ID(), spec.Dir, err)
		}
	}
	if t := all.traffic[spec.Name]; t != nil && checkTraffic(t, before) == nil {
		if err := checkTraffic(t, after); err != nil {
			return nil, fmt.Errorf("model %s in %s does not fit the traffic rules of its model: %w", spec.ID(), spec.Dir, err)
		}
	}
	fresh, err := d.cfg.Host.New(*spec)
	if err == nil {
		before = after
	}
	return fresh, err
}

// takeFunctions makes a directory's functions those that its models declare. Functions that were applied come first.
func (d *Declarations) takeFunctions(s *versions.State, w *watched, specs []api.FunctionSpec) {
	all := d.declared(s)
	wanted := map[string]bool{}
	var put manifest.Set
	for _, spec := range specs {
		old, exists := d.cfg.Functions.Get(spec.Name)
		if exists && old.Source != w.dir {
			w.problems = append(w.problems, fmt.Sprintf("function %s is declared in %s, and by %s already: that one holds", spec.Name, w.dir, old.Source))
			continue
		}
		_, err := functions.PolicyOf(&spec)
		if err == nil {
			err = checkCandidates(&spec, all.models, all.traffic)
		}
		if err == nil {
			_, err = d.checkCalls(all.models, all.models, []api.FunctionSpec{spec})
		}
		wanted[spec.Name] = true // a wrong declaration leaves the old one as it is
		if err != nil {
			w.problems = append(w.problems, fmt.Sprintf("function %s: %v", spec.Name, err))
			continue
		}
		if !exists || !reflect.DeepEqual(*old.Spec, spec) {
			put.Functions = append(put.Functions, spec)
		}
	}
	for name, f := range s.Families() {
		if f.Source == w.dir && len(f.Versions) > 0 {
			wanted[name] = true
		}
	}
	for _, name := range d.cfg.Functions.Names() {
		if f, ok := d.cfg.Functions.Get(name); ok && f.Source == w.dir && !wanted[name] {
			d.cfg.Functions.Drop(s, name)
		}
	}
	if err := d.put(s, &put, nil, w.dir); err != nil {
		w.problems = append(w.problems, err.Error())
	}
	d.implyFunctions(s)
}

// implied is the function that deploying a model declares.
func implied(name string) api.FunctionSpec {
	return api.FunctionSpec{Name: name, Models: []string{name}}.WithDefaults()
}

// implyFunctions declares a function for each model of a watched directory that has none of its name.
func (d *Declarations) implyFunctions(s *versions.State) {
	for _, name := range s.FamilyNames() {
		f := s.Family(name)
		if f.Source == versions.Applied || f.Source == "" || len(f.Versions) == 0 {
			continue
		}
		if _, exists := d.cfg.Functions.Get(name); exists {
			continue
		}
		if err := d.cfg.Functions.Put(s, implied(name), f.Source); err != nil {
			d.cfg.Log.Error("function of a watched model", zap.String("name", name), zap.Error(err))
		}
	}
}

// SourcesRead reports whether every watched directory has been read once. The catalog's lock is held.
func (d *Declarations) SourcesRead() bool {
	for _, w := range d.watching {
		if !w.seen || w.settling && time.Since(d.cfg.Started) < settleWithin {
			return false
		}
	}
	return true
}

// Unread returns why not everything that is declared is known yet, or "" if it is: a shared store that did not answer at the start, or
// a watched directory. Once everything has been read it stays known.
func (d *Declarations) Unread() string {
	if d.read.Load() {
		return ""
	}
	if why := d.storeUnread(); why != "" {
		return why
	}
	d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	if !d.SourcesRead() {
		return "a watched directory of models has not been read yet"
	}
	d.read.Store(true)
	return ""
}

// Unknown is the error for a name that is not declared. Before everything has been read it says that the name may exist. The catalog's
// lock is not held.
func (d *Declarations) Unknown(kind, name string) error {
	if why := d.Unread(); why != "" {
		return api.Errorf(api.Unavailable, "%s %q is not known yet: %w", kind, name, &api.UnreadError{Why: why})
	}
	return api.Errorf(api.NotFound, "no %s %q", kind, name)
}

// storeUnread is Unread for the shared store alone.
func (d *Declarations) storeUnread() string {
	if d.shared() && !d.synced.Load() {
		return fmt.Sprintf("the store %s has not been read yet, because it does not answer", d.cfg.Store.Name())
	}
	return ""
}

// StoreProblem returns why the store takes no change, as far as it knows that without being asked for one. A disk may hang, so
// the catalog's lock is not held.
func (d *Declarations) StoreProblem() string {
	if file, ok := d.cfg.Store.(interface{ CheckPath() error }); ok {
		if err := file.CheckPath(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// reportStore logs a problem of the store after a call of it has failed. One problem is logged once.
func (d *Declarations) reportStore() {
	why := d.StoreProblem()
	if why == "" {
		return
	}
	if was := d.reported.Swap(&why); was == nil || *was != why {
		d.cfg.Log.Error("the store cannot be used", zap.String("problem", why))
	}
}

// Sources describes where models come from. storeProblem is the store's. The catalog's lock is held.
func (d *Declarations) Sources(s *versions.State, storeProblem string) []api.SourceStatus {
	applied := api.SourceStatus{Name: versions.Applied}
	if storeProblem != "" {
		applied.Problems = append(applied.Problems, storeProblem)
	}
	for _, f := range s.Families() {
		if f.Source == versions.Applied && len(f.Versions) > 0 {
			applied.Models++
		}
	}
	for _, why := range d.edited {
		applied.Problems = append(applied.Problems, why)
	}
	for _, why := range d.problems {
		applied.Problems = append(applied.Problems, why)
	}
	sort.Strings(applied.Problems)
	out := []api.SourceStatus{applied}
	for _, w := range d.watching {
		out = append(out, api.SourceStatus{Name: w.dir, Models: w.models, Problems: w.problems})
	}
	return out
}

// Outcomes are how many roll-outs ended in a promotion and in a retreat.
func (d *Declarations) Outcomes() (rolledOut, retreated uint64) {
	return d.rolledOut.Load(), d.retreated.Load()
}
