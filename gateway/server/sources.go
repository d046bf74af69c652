package server

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
	"go.uber.org/zap"
)

// asConfig is who applies what --config names.
func asConfig(ctx context.Context) context.Context {
	return admin.WithCaller(ctx, admin.Caller{Name: "--config"})
}

// watched is a directory of models.
type watched struct {
	dir      string
	one      sync.Mutex // held by who uses watcher, which is for one at a time
	watcher  *watch.Watcher
	seen     bool // it has been read once
	settling bool // there is more to come of what lies there
	models   int
	problems []string
	// last is its last report that was complete, told the problems of the last one.
	last watch.Report
	told []string
}

// watchModels starts to look at the directories.
func (s *Server) watchModels(ctx context.Context) {
	for _, w := range s.watching {
		go func() { // nobody waits for its end: a file system that hangs would keep the gateway from ending
			w.one.Lock()
			defer w.one.Unlock()
			w.watcher.Run(ctx, func(r watch.Report) { s.aspire(w, r) })
		}()
	}
}

// lookAround takes in what the watched directories have now.
func (s *Server) lookAround() {
	for _, w := range s.watching {
		seen := make(chan watch.Report, 1)
		go func() {
			w.one.Lock()
			defer w.one.Unlock()
			seen <- w.watcher.Scan()
		}()
		select {
		case r := <-seen:
			s.aspire(w, r)
		case <-time.After(lookWithin):
			s.log.Warn("a watched directory does not answer: the gateway starts without it", zap.String("directory", w.dir), zap.Duration("after", lookWithin))
		}
	}
}

// aspire takes in what a watched directory has.
func (s *Server) aspire(w *watched, r watch.Report) {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	// What was copied just before the start is waited for, but not for long: it may be copied for hours.
	w.seen, w.settling, w.told = true, r.Settling, nil
	for _, p := range r.Problems {
		w.told = append(w.told, p.String())
	}
	w.problems = slices.Clone(w.told)
	if !r.Complete { // nothing is concluded from what cannot be seen
		return
	}
	w.last = r
	s.aspireAllLocked(w)
	s.settleLocked()
}

// aspireAllLocked makes what a directory declares what it last had.
func (s *Server) aspireAllLocked(w *watched) {
	r := w.last
	w.models = len(r.Models)
	all := s.declaredLocked()
	for _, name := range sortedNames(r.Models) {
		f := s.families[name]
		if f != nil && len(f.versions) > 0 && f.source != w.dir {
			why := fmt.Sprintf("model %s lies in %s, and is declared by %s already: that one serves; remove one of the two", name, w.dir, f.sourceName())
			w.problems = append(w.problems, why)
			continue
		}
		s.aspireLocked(w, name, r.Models[name], all)
	}
	for name, f := range s.families {
		if f.source == w.dir {
			if _, there := r.Models[name]; !there {
				s.aspireLocked(w, name, nil, all)
			}
		}
	}
	s.functionsOfLocked(w, r.Functions)
}

// reconsiderLocked looks again at directories of which not everything could be taken: what stood in its way may be gone.
func (s *Server) reconsiderLocked() {
	for _, w := range s.watching {
		if len(w.problems) > len(w.told) {
			w.problems = slices.Clone(w.told)
			s.aspireAllLocked(w)
		}
	}
}

func (f *family) sourceName() string {
	if f.source == sourceApply {
		return "apply"
	}
	return "the watched directory " + f.source
}

// comesFrom says how a model of a watched directory is changed, or a version of it is added: not by being applied. d is nil for a new version.
func comesFrom(f *family, d *deployment, m *api.ModelSpec) error {
	if d == nil {
		return fmt.Errorf("the model comes from the watched directory %s: put the version there, or give this model another name", f.source)
	}
	edit := "edit"
	if d.spec().Replicas != m.Replicas {
		edit = "edit replicas in"
	}
	return fmt.Errorf("the model comes from the watched directory %s: %s %s, which the gateway follows", f.source, edit, filepath.Join(d.spec().Dir, manifest.ModelFile))
}

// aspireLocked makes the versions of a model those that a directory has.
func (s *Server) aspireLocked(w *watched, name string, specs []api.ModelSpec, all *declared) {
	there := map[string]bool{}
	for _, spec := range specs {
		there[spec.Version] = true
		if spec.Device != "" && s.devices[spec.Device] == nil {
			w.problems = append(w.problems, fmt.Sprintf("model %s needs the device %q: expected %s", spec.ID(), spec.Device, s.deviceNames()))
			continue
		}
		d := s.models[spec.ID()]
		if d != nil && d.life.gone && d.spec().Fixed(&spec) != "" { // it was removed, and another one has its name
			s.disownLocked(d)
			s.retire(d)
			d = nil
		}
		if d == nil {
			fresh, err := s.deployWatchedLocked(&spec, all)
			if err != nil {
				w.problems = append(w.problems, err.Error())
				continue
			}
			s.adoptLocked(fresh, w.dir)
			continue
		}
		d.life.gone = false // it is there again
		if !reflect.DeepEqual(*d.spec(), spec) {
			if err := s.updateLocked(d, spec); err != nil {
				w.problems = append(w.problems, err.Error())
			}
		}
	}
	if f := s.families[name]; f != nil && f.source == w.dir {
		for v, d := range f.versions {
			if !there[v] && !d.life.gone {
				d.life.gone = true
				s.log.Info("a version is not in its directory any more", zap.Stringer("model", d.id), zap.String("directory", w.dir))
			}
		}
	}
	s.touchLocked(name)
}

// deployWatchedLocked makes the deployment of a version that fits those who will use it.
func (s *Server) deployWatchedLocked(spec *api.ModelSpec, all *declared) (*deployment, error) {
	before := all.models[spec.Name]
	after := append(slices.Clone(before), spec)
	for _, f := range all.users[spec.Name] {
		fits := func(versions []*api.ModelSpec) error {
			all.models[spec.Name] = versions
			return checkCandidates(f, all.models, all.traffic)
		}
		if fits(before) != nil { // it is not the new version's fault
			continue
		}
		if err := fits(after); err != nil {
			all.models[spec.Name] = before
			return nil, fmt.Errorf("model %s in %s does not fit function %s: %w", spec.ID(), spec.Dir, f.Name, err)
		}
	}
	all.models[spec.Name] = before
	if t := all.traffic[spec.Name]; t != nil && checkTraffic(t, before) == nil {
		if err := checkTraffic(t, after); err != nil {
			return nil, fmt.Errorf("model %s in %s does not fit the traffic rules of its model: %w", spec.ID(), spec.Dir, err)
		}
	}
	d, err := s.deployLocked(*spec)
	if err == nil {
		all.models[spec.Name] = after
	}
	return d, err
}

// declared is all versions, all traffic rules and all functions, by model.
type declared struct {
	models  map[string][]*api.ModelSpec
	traffic map[string]*api.TrafficSpec
	users   map[string][]*api.FunctionSpec
}

func (s *Server) declaredLocked() *declared {
	all := &declared{make(map[string][]*api.ModelSpec, len(s.families)), map[string]*api.TrafficSpec{}, map[string][]*api.FunctionSpec{}}
	for name, f := range s.families {
		for _, d := range f.versions {
			all.models[name] = append(all.models[name], d.spec())
		}
		if f.traffic != nil {
			all.traffic[name] = f.traffic
		}
	}
	for _, f := range s.functions {
		for _, ref := range f.spec.Refs() {
			name, _, _ := strings.Cut(ref, "@")
			all.users[name] = append(all.users[name], &f.spec)
		}
	}
	return all
}

// functionsOfLocked makes a directory's functions those that its models declare; those that were applied go first.
func (s *Server) functionsOfLocked(w *watched, declared []api.FunctionSpec) {
	all := s.declaredLocked()
	wanted := map[string]bool{}
	var put manifest.Set
	for _, spec := range declared {
		if f := s.functions[spec.Name]; f != nil && f.source != w.dir {
			w.problems = append(w.problems, fmt.Sprintf("function %s is declared in %s, and by %s already: that one holds", spec.Name, w.dir, f.source))
			continue
		}
		_, err := policyOf(&spec)
		if err == nil {
			err = checkCandidates(&spec, all.models, all.traffic)
		}
		wanted[spec.Name] = true // what is wrong leaves the old one as it is
		if err != nil {
			w.problems = append(w.problems, fmt.Sprintf("function %s: %v", spec.Name, err))
			continue
		}
		if f := s.functions[spec.Name]; f == nil || !reflect.DeepEqual(f.spec, spec) {
			put.Functions = append(put.Functions, spec)
		}
	}
	for name, f := range s.families {
		if f.source == w.dir && len(f.versions) > 0 {
			wanted[name] = true
		}
	}
	for _, name := range sortedNames(s.functions) {
		if f := s.functions[name]; f.source == w.dir && !wanted[name] {
			s.dropFunctionLocked(name)
		}
	}
	if err := s.installLocked(&put, nil, w.dir); err != nil {
		w.problems = append(w.problems, err.Error())
	}
	s.implyLocked()
}

// implyLocked declares a function for each model of a watched directory that has none of its name.
func (s *Server) implyLocked() {
	for _, name := range sortedNames(s.families) {
		f := s.families[name]
		if f.source == sourceApply || f.source == "" || len(f.versions) == 0 || s.functions[name] != nil {
			continue
		}
		put := manifest.Set{Functions: []api.FunctionSpec{implied(name)}}
		if err := s.installLocked(&put, nil, f.source); err != nil {
			s.log.Error("function of a watched model", zap.String("name", name), zap.Error(err))
		}
	}
}

// storeTrouble says why the store takes no change, as far as it knows that without being asked for one; empty: it does not say.
func (s *Server) storeTrouble() string {
	if held, ok := s.objects.(interface{ Held() error }); ok {
		if err := held.Held(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// sourcesLocked describes where models come from. trouble is the store's, found without the lock, for a disk may hang.
func (s *Server) sourcesLocked(trouble string) []api.SourceStatus {
	applied := api.SourceStatus{Name: sourceApply}
	if trouble != "" {
		applied.Problems = append(applied.Problems, trouble)
	}
	for _, f := range s.families {
		if f.source == sourceApply && len(f.versions) > 0 {
			applied.Models++
		}
	}
	for _, why := range s.troubles {
		applied.Problems = append(applied.Problems, why)
	}
	sort.Strings(applied.Problems)
	out := []api.SourceStatus{applied}
	for _, w := range s.watching {
		out = append(out, api.SourceStatus{Name: w.dir, Models: w.models, Problems: w.problems})
	}
	return out
}

// readLocked reports whether every watched directory has been read once.
func (s *Server) readLocked() bool {
	for _, w := range s.watching {
		if !w.seen || w.settling && time.Since(s.started) < settleWithin {
			return false
		}
	}
	return true
}

// patience is how long things that are ending may take.
func (s *Server) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
}

// background runs what the end of the gateway waits for.
func (s *Server) background(work func()) {
	s.ending.Add(1)
	go func() {
		defer s.ending.Done()
		work()
	}()
}

// lookWithin bounds the first look at a watched directory, which holds up the start.
const lookWithin = 30 * time.Second

// settleWithin is how long a gateway that has just started is not ready for the sake of what is being copied to a watched directory.
const settleWithin = 10 * time.Second

// modelsEvery is how often watched directories are looked at, unless said otherwise.
const modelsEvery = time.Second
