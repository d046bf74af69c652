package watch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// model is a directory of versions.
type model struct {
	name, path string
	link       bool
	listing    listing
	seen       int // the last scan that found it
	missed     int // number of consecutive scans that did not
	problem    string
	// unmounted means that the directory became empty when it changed to another file system.
	unmounted bool
	versions  map[string]*version
	// accepted maps a directory to the version that was accepted from it.
	accepted map[identity]*version
}

// ignoredName reports whether a name is not a model or a version: hidden, an incomplete copy, or the file system's own.
func ignoredName(name string) bool {
	if strings.HasPrefix(name, ".") || name == "lost+found" {
		return true
	}
	for _, end := range []string{"~", ".tmp", ".part", ".partial", ".swp"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// scanRoot scans everything, unless the directory itself has a problem.
func (w *Watcher) scanRoot() {
	s, err := stat(w.dir)
	if err == nil && !s.isDir() {
		w.setProblem(&w.problem, "%s: is a file: expected a directory of models (NAME/VERSION/%s)", w.dir, manifest.ModelFile)
		return
	}
	if err == nil {
		err = w.list(&w.root, w.dir, s, w.checkName)
	}
	if err != nil {
		w.setProblem(&w.problem, "%s: %s; its previous contents are kept: mount it, create it or make it readable", w.dir, reason(err))
		return
	}
	if w.root.total == 0 && w.wasFilled {
		w.setProblem(&w.problem, "%s: is empty, but was not before, as if its disk were not mounted; its previous contents are kept: "+
			"mount it or, if it should be empty, create a file named .empty in it", w.dir)
		return
	}
	w.setProblem(&w.problem, "")
	w.wasFilled = w.wasFilled || w.root.total > 0
	for _, e := range w.root.entries {
		m := w.models[e.name]
		if m == nil {
			m = &model{name: e.name, path: filepath.Join(w.dir, e.name), versions: map[string]*version{}, accepted: map[identity]*version{}}
			w.models[e.name] = m
		}
		m.link = e.link
		if w.scanModel(m) {
			m.seen, m.missed = w.scans, 0
		}
	}
	for name, m := range w.models {
		if m.seen == w.scans {
			continue
		}
		if m.missed++; m.missed < 2 && len(m.versions) > 0 {
			continue
		}
		for _, v := range m.versions {
			w.drop(m, v)
		}
		delete(w.models, name)
		w.dirty = w.dirty || m.problem != "" || len(m.listing.problems) > 0
	}
}

// scanModel scans a model's versions. It returns false if there is no such directory.
func (w *Watcher) scanModel(m *model) bool {
	s, err := stat(m.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.link:
		w.setProblem(&m.problem, "%s: is a dangling link; its previous contents are kept: fix the link, or remove it", m.path)
		return true
	case errors.Is(err, fs.ErrNotExist), err == nil && !s.isDir():
		return false
	case err == nil:
		before := m.listing.stamp
		err = w.list(&m.listing, m.path, s, w.checkVersion)
		if err == nil {
			m.unmounted = m.listing.total == 0 && len(m.versions) > 0 && (m.unmounted || before.dev != s.dev)
		}
		if err == nil && m.unmounted {
			w.setProblem(&m.problem, "%s: is empty, and on another file system than before; its previous contents are kept: "+
				"mount it, or remove the directory", m.path)
			return true
		}
	}
	if err != nil {
		w.setProblem(&m.problem, "%s: %s; its previous contents are kept: make the directory readable, or remove it", m.path, reason(err))
		return true
	}
	w.setProblem(&m.problem, "")
	for _, e := range m.listing.entries {
		v := m.versions[e.name]
		if v == nil {
			if w.count >= w.maxVersions {
				w.excess++
				continue
			}
			v = &version{name: e.name, path: filepath.Join(m.path, e.name)}
			v.file = filepath.Join(v.path, manifest.ModelFile)
			m.versions[e.name] = v
			w.count++
		}
		v.link = e.link
		if w.examine(m, v) {
			v.seen, v.missed = w.scans, 0
		}
	}
	for _, v := range m.versions {
		if v.seen == w.scans {
			continue
		}
		m.release(v)
		if v.missed++; v.missed >= 2 || v.spec == nil {
			w.drop(m, v)
		}
	}
	return true
}

// drop removes a version.
func (w *Watcher) drop(m *model, v *version) {
	m.release(v)
	delete(m.versions, v.name)
	w.count--
	w.dirty = w.dirty || v.spec != nil || v.problem != ""
}

// checkName checks an entry of the directory itself, checkVersion one of a model's directory. They return whether to
// examine it and, if not, the problem with it, if any.
func (w *Watcher) checkName(path string, e entry) (bool, Problem) {
	return checkEntry(path, e, api.CheckName("model", e.name))
}

func (w *Watcher) checkVersion(path string, e entry) (bool, Problem) {
	keep, p := checkEntry(path, e, api.CheckVersion(e.name))
	p.Name = filepath.Base(path)
	return keep, p
}

func checkEntry(path string, e entry, err error) (bool, Problem) {
	switch {
	case ignoredName(e.name):
		return false, Problem{}
	case e.name == manifest.ModelFile && !e.dir:
		return false, Problem{Message: fmt.Sprintf("%s: is not in a version's directory: expected NAME/VERSION/%s below the watched directory",
			filepath.Join(path, e.name), manifest.ModelFile)}
	case !e.dir && !e.link:
		return false, Problem{} // for example a README
	case err != nil:
		return false, Problem{Message: fmt.Sprintf("%s: %v; rename the directory, or start its name with a dot to hide it", filepath.Join(path, printable(e.name)), err)}
	}
	return true, Problem{}
}

// printable truncates and cleans an unchecked name.
func printable(name string) string {
	if clean := strings.ToValidUTF8(name, "?"); len(clean) <= 80 {
		return clean
	}
	return strings.ToValidUTF8(name[:80], "?") + "…"
}

// build makes a report.
func (w *Watcher) build() Report {
	r := Report{Models: map[string][]api.ModelSpec{}, Complete: w.problem == ""}
	var problems []Problem
	if w.problem != "" {
		problems = append(problems, Problem{Message: w.problem})
	}
	if w.excess > 0 {
		text := fmt.Sprintf("%s: has %d version directories more than the limit of %d: remove old ones", w.dir, w.excess, w.maxVersions)
		problems = append(problems, Problem{Message: text})
	}
	problems = append(problems, w.root.problems...)
	functions := map[string][]claim{}
	for _, name := range slices.Sorted(maps.Keys(w.models)) {
		m := w.models[name]
		if m.problem != "" {
			problems = append(problems, Problem{Name: name, Message: m.problem})
		}
		problems = append(problems, m.listing.problems...)
		versions := slices.SortedFunc(maps.Values(m.versions), func(a, b *version) int {
			return cmp.Or(api.CompareVersions(a.name, b.name), strings.Compare(a.name, b.name))
		})
		for _, v := range versions {
			if v.problem != "" {
				problems = append(problems, Problem{Name: name, Version: v.name, Message: v.problem})
			}
			r.Settling = r.Settling || v.spec == nil && v.hasPrint && !v.settled
			if v.spec != nil {
				r.Models[name] = append(r.Models[name], *v.spec)
				claims(functions, m, v)
			}
		}
	}
	r.Functions, problems = w.assignFunctions(functions, problems)
	if n := len(problems); n > MaxProblems {
		problems = append(problems[:MaxProblems:MaxProblems], Problem{Message: fmt.Sprintf("%s: has %d more problems", w.dir, n-MaxProblems)})
	}
	r.Problems = problems
	return r
}

// claim is a model's declaration of a function, by its newest version that declares it.
type claim struct {
	model *model
	by    *version
	spec  *api.FunctionSpec
}

// claims adds a version's functions. Versions are added oldest first.
func claims(all map[string][]claim, m *model, v *version) {
	for i := range v.functions {
		f := &v.functions[i]
		list := all[f.Name]
		if n := len(list); n > 0 && list[n-1].model == m {
			list = list[:n-1]
		}
		all[f.Name] = append(list, claim{m, v, f})
	}
}

// assignFunctions assigns each function to one model: the one that had it, or else the first by name.
func (w *Watcher) assignFunctions(all map[string][]claim, problems []Problem) ([]api.FunctionSpec, []Problem) {
	var functions []api.FunctionSpec
	owners := make(map[string]string, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list := all[name]
		winner := max(0, slices.IndexFunc(list, func(c claim) bool { return c.model.name == w.owners[name] }))
		owners[name] = list[winner].model.name
		functions = append(functions, *list[winner].spec)
		for i, c := range list {
			if i != winner {
				problems = append(problems, Problem{Name: c.model.name, Version: c.by.name,
					Message: fmt.Sprintf("%s: another model already declares function %s, in %s: rename one of them", c.by.file, name, list[winner].by.file)})
			}
		}
	}
	w.owners = owners
	return functions, problems
}
