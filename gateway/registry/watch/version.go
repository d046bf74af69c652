package watch

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// incompleteFile keeps a version waiting as long as it is in the version's directory.
const incompleteFile = ".incomplete"

// version is a version's directory. It waits until it has looked the same twice and its manifest is valid. It then has
// a spec, which it keeps until the directory is removed.
type version struct {
	name, path, file string // file is the path of its manifest
	link             bool
	seen, missed     int
	identity         identity // of the directory

	// settled means that it was judged, at judgedNanos, and must be judged again only if one of the stamps changes.
	settled     bool
	judgedNanos int64
	dir, yaml   stamp
	// hasPrint means that print is the fingerprint of the last scan.
	hasPrint bool
	print    uint64
	// decoded means that a manifest was judged: content is its hash, and verdict the problem with it.
	decoded bool
	content uint64
	verdict string

	spec      *api.ModelSpec // nil while it waits; replaced, never modified
	functions []api.FunctionSpec
	problem   string
}

// examine checks one version. It returns false if there is no such directory.
func (w *Watcher) examine(m *model, v *version) bool {
	dir, err := stat(v.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && v.link:
		w.setProblem(&v.problem, "%s: is a dangling link: fix the link, or remove it%s", v.path, v.keptNote())
		v.settled, v.hasPrint = false, false
		return true
	case errors.Is(err, fs.ErrNotExist), err == nil && !dir.isDir():
		return false
	case err != nil:
		w.setProblem(&v.problem, "%s: %s: make the directory readable, or remove it%s", v.path, reason(err), v.keptNote())
		v.settled, v.hasPrint = false, false
		return true
	}
	m.setIdentity(v, dir.identity)
	yaml, _ := stat(v.file)
	if v.settled && dir == v.dir && yaml == v.yaml && !recent(v.judgedNanos, dir) && !recent(v.judgedNanos, yaml) {
		return true
	}
	v.settled, v.dir, v.yaml = false, dir, yaml
	if _, err := os.Lstat(filepath.Join(v.path, incompleteFile)); err == nil {
		v.hasPrint = false
		if v.spec == nil {
			w.setProblem(&v.problem, "")
		}
		return true
	}
	if !w.isStable(v, dir, yaml) {
		return true
	}
	v.settled = w.judge(m, v)
	v.judgedNanos = w.nowNanos
	return true
}

// keptNote returns what messages add about an accepted version.
func (v *version) keptNote() string {
	if v.spec == nil {
		return ""
	}
	return "; the accepted version is kept"
}

// setIdentity records the directory that the path leads to, and that it belongs to this version.
func (m *model) setIdentity(v *version, at identity) {
	if v.identity != at {
		m.release(v)
		v.identity = at
	}
	if v.spec != nil && m.accepted[at] == nil {
		m.accepted[at] = v
	}
}

// release gives up a version's directory: its inode may be reused.
func (m *model) release(v *version) {
	if m.accepted[v.identity] == v {
		delete(m.accepted, v.identity)
	}
}

// isStable reports whether a version looks as in the last scan: its whole tree while it waits, its manifest once it is
// accepted.
func (w *Watcher) isStable(v *version, dir, yaml stamp) bool {
	var t tree
	if v.spec != nil {
		w.mix(&t, manifestTarget, yaml)
	} else {
		var err error
		if t, err = w.fingerprint(v, dir, yaml); err != nil {
			v.hasPrint = false
			w.setProblem(&v.problem, "%s: %s: make the directory readable, or remove it", v.path, reason(err))
			return false
		}
	}
	same := v.hasPrint && v.print == t.print
	if !same && w.scans == 1 && !t.truncated && t.newestNanos <= w.nowNanos-int64(quietFor) {
		same = true
	}
	if !same && v.spec == nil {
		w.setProblem(&v.problem, "") // it is being changed
	}
	v.hasPrint, v.print = true, t.print
	return same
}

// judge reads the manifest and accepts the version or sets its problem. It returns false if it must be called again
// even if nothing about the version changes.
func (w *Watcher) judge(m *model, v *version) bool {
	if u := m.accepted[v.identity]; u != nil && u != v {
		w.setProblem(&v.problem, "%s: is the same directory as %s: each version needs its own", v.path, u.path)
		return false
	}
	data, now, err := readManifest(v.path)
	if err == nil && now != v.yaml {
		v.hasPrint = false // it was replaced meanwhile
		return false
	}
	if err != nil {
		w.setProblem(&v.problem, "%s: %s%s", v.file, reason(err), v.keptNote())
		return true
	}
	if content := maphash.Bytes(w.seed, data); !v.decoded || v.content != content {
		v.decoded, v.content, v.verdict = true, content, ""
		if err := w.accept(m, v, data); err != nil {
			v.verdict = err.Error() + v.keptNote()
		}
	}
	w.setProblem(&v.problem, "%s", v.verdict)
	return true
}

// accept makes a manifest the version's, if it is valid and permitted.
func (w *Watcher) accept(m *model, v *version, data []byte) error {
	spec, functions, err := decode(m.name, v, data)
	if err != nil {
		return err
	}
	if v.spec != nil {
		if field := v.spec.Fixed(spec); field != "" {
			return fmt.Errorf("%s: %s differs from the accepted version: a version never changes; "+
				"revert the change and make it in a new version", v.file, field)
		}
	}
	if v.spec == nil || !reflect.DeepEqual(v.spec, spec) || !reflect.DeepEqual(v.functions, functions) {
		v.spec, v.functions = spec, functions
		w.dirty = true
	}
	m.setIdentity(v, v.identity)
	return nil
}

// readManifest reads the xebec.yaml of a directory and its stamp. It follows no link out of the directory and does not
// wait for a pipe.
func readManifest(dir string) ([]byte, stamp, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, stamp{}, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(manifest.ModelFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, stamp{}, errors.New("is missing: a version's directory must have one")
	}
	if err != nil {
		return nil, stamp{}, fmt.Errorf("%w: expected a file in the version's directory", reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	if info.IsDir() {
		return nil, stamp{}, errors.New("is a directory: expected the manifest, a regular file")
	}
	if !info.Mode().IsRegular() {
		return nil, stamp{}, errors.New("is a pipe, a socket or a device: expected the manifest, a regular file")
	}
	var s stamp
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s = stampOf(st)
	}
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	return data, s, err
}

// decode decodes a version's manifest. The path determines model and version, and the manifest must agree.
func decode(name string, v *version, data []byte) (*api.ModelSpec, []api.FunctionSpec, error) {
	set, err := manifest.Decode(v.file, data)
	if err != nil {
		return nil, nil, err
	}
	if len(set.Models) != 1 {
		return nil, nil, fmt.Errorf("%s: declares %d models: expected one", v.file, len(set.Models))
	}
	if len(set.Traffic) > 0 {
		return nil, nil, fmt.Errorf("%s: declares traffic, which is not part of a version: move it to a separate manifest and apply that",
			set.Locate(api.KindTraffic, 0, ""))
	}
	spec := &set.Models[0]
	at := func(field string) string { return set.Locate(api.KindModel, 0, field) }
	if spec.Name != name {
		return nil, nil, fmt.Errorf("%s: name: %q, but the directory is that of model %q: expected the same name", at("name"), spec.Name, name)
	}
	if at("version") == at("") {
		spec.Version = v.name // the manifest has no version, and the default does not apply here
	}
	if spec.Version != v.name {
		return nil, nil, fmt.Errorf("%s: version: %q, but the directory is that of version %q: expected the same version, or none",
			at("version"), spec.Version, v.name)
	}
	if spec.Dir != "" {
		return nil, nil, fmt.Errorf("%s: dir: a watched version has its own directory as dir: remove the field", at("dir"))
	}
	spec.Dir = v.path
	return spec, set.Functions, nil
}
