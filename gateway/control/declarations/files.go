package declarations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"go.uber.org/zap"
)

// A version is its bytes. Before a change is judged each model of it gets the digest of its files, and a copy of them is kept, without
// any lock: that may take as long as copying gigabytes. What is judged later are digests.

// have is what is declared of the versions that a set names, as far as their files are concerned.
func (d *Declarations) have(set *manifest.Set) map[api.ModelID]*api.ModelSpec {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	found := map[api.ModelID]*api.ModelSpec{}
	for i := range set.Models {
		if v := s.Version(set.Models[i].ID()); v != nil {
			spec := *v.Spec()
			spec.Digest, spec.ImageDigest = v.Digest(), v.ImageDigest()
			found[spec.ID()] = &spec
		}
	}
	return found
}

// takeDigests gives each model of the set the digest of its files, and keeps copies of them unless it is only a trial.
func (d *Declarations) takeDigests(ctx context.Context, set *manifest.Set, dryRun bool) error {
	return d.takeDigestsOf(ctx, set, dryRun, false)
}

// takeDigestsOf is takeDigests. atStart, files that cannot be taken do not keep a version that is declared already from serving.
func (d *Declarations) takeDigestsOf(ctx context.Context, set *manifest.Set, dryRun, atStart bool) error {
	have := d.have(set)
	d.takeImages(ctx, set, have, false)
	taken := map[string]string{} // thousands of models may share a directory
	for i := range set.Models {
		m := &set.Models[i]
		if dryRun && have[m.ID()] == nil { // to apply it all the same declares a version that fails until what is missing comes
			if _, err := os.Stat(m.Dir); m.Dir == "" || err == nil {
				if err := d.cfg.Host.Check(ctx, m); err != nil {
					return refuse(set, api.KindModel, i, api.InvalidArgument, err)
				}
			}
		}
		m.Interpreter = cmp.Or(m.Interpreter, d.cfg.Host.Interpreter(m))
		if was := have[m.ID()]; was != nil {
			m.Interpreter = was.Interpreter // that of the first declaration
		}
		named := m.Digest != "" // its files were sent
		o := deployment.TreeOptions(m)
		key := fmt.Sprintf("%q %q %q %q", m.Dir, m.Digest, m.Run.Command, o.Exclude)
		if digest, ok := taken[key]; ok && have[m.ID()] == nil {
			m.Digest = digest
			continue
		}
		if err := d.takeDigest(ctx, m, have[m.ID()], set.Base(), o, dryRun); err != nil {
			if ctx.Err() != nil {
				return api.Errorf(api.Cancelled, "%w", ctx.Err())
			}
			code := api.InvalidArgument
			if errors.Is(err, snapshot.ErrNoRoom) { // the manifest is good
				code = api.Unavailable
			}
			err = refuse(set, api.KindModel, i, code, err)
			was := have[m.ID()]
			if !atStart || was == nil {
				return err
			}
			d.cfg.Log.Error("the files of a version cannot be taken: it keeps those that it has", zap.Stringer("model", m.ID()), zap.Error(err))
			m.Digest = was.Digest
		}
		if have[m.ID()] == nil {
			taken[key] = m.Digest
		}
		if was := have[m.ID()]; !atStart && (was == nil || was.Digest != m.Digest) {
			if err := d.cfg.Host.CheckRequirements(m, d.filesOf(ctx, m, named)); err != nil {
				return refuse(set, api.KindModel, i, api.InvalidArgument, err)
			}
		}
	}
	return nil
}

// filesOf is where the files of a model that is to be declared lie; empty: they are not here. sent says that they are not in its directory.
func (d *Declarations) filesOf(ctx context.Context, m *api.ModelSpec, sent bool) string {
	if store := d.cfg.Host.Snapshots; sent && store != nil && m.Digest != api.DigestNone {
		if dir, err := store.Dir(ctx, m.Digest); err == nil {
			return dir
		}
	}
	if _, err := os.Stat(m.Dir); m.Dir == "" || err != nil {
		return ""
	}
	return m.Dir
}

// takeDigest gives one model the digest of its files. was is the version as it is declared; nil: it is new. The error is
// api.FieldErrors or has [snapshot.ErrNoRoom].
func (d *Declarations) takeDigest(ctx context.Context, m, was *api.ModelSpec, base string, o snapshot.Options, dryRun bool) error {
	store := d.cfg.Host.Snapshots
	known := ""
	if was != nil {
		known = was.Digest
	}
	switch {
	case store == nil || m.Dir == "" || m.Digest == api.DigestNone:
		if m.Digest == "" {
			m.Digest = known
		}
		return nil
	case m.Digest != "" && (m.Digest == known || store.Has(m.Digest)):
		return nil
	case m.Digest == "" && known == api.DigestNone, m.Digest == "" && known == "" && !deployment.Owns(m, base):
		m.Digest = api.DigestNone
		return nil
	}
	_, err := os.Stat(m.Dir)
	if errors.Is(err, fs.ErrNotExist) && known != "" && m.Digest == "" {
		m.Digest = known // it is applied again from where its files are not
		return nil
	}
	now := &snapshot.Tree{}
	if err == nil && dryRun {
		now, err = store.Look(ctx, m.Dir, o)
	} else if err == nil {
		var added snapshot.Added
		if added, err = store.Add(ctx, m.Dir, o); err == nil {
			now = added.Tree
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return api.FieldErrors{{Path: "dir", Message: fmt.Sprintf("%s is not on the gateway's host", m.Dir)}}
	}
	if errors.Is(err, snapshot.ErrNoRoom) {
		return err
	}
	if err != nil {
		return api.FieldErrors{{Path: "dir", Message: err.Error()}}
	}
	if m.Digest != "" && m.Digest != now.Digest {
		err := &snapshot.DiffersError{Dir: m.Dir, Digest: m.Digest, Now: now.Digest, How: store.Difference(m.Digest, now)}
		return api.FieldErrors{{Path: "digest", Message: err.Error() + "; leave the digest out to declare the files as they are"}}
	}
	m.Digest = now.Digest
	return nil
}

// otherBytes says that a version is declared with other files than it has.
func (d *Declarations) otherBytes(was string, m *api.ModelSpec) error {
	how := ""
	if store := d.cfg.Host.Snapshots; store != nil {
		if now, err := store.Tree(m.Digest); err == nil {
			how = store.Difference(was, now)
		}
	}
	how = cmp.Or(how, fmt.Sprintf("they had the digest %s, and have %s", was, m.Digest))
	return api.FieldErrors{{Path: "dir", Message: fmt.Sprintf("the version exists with other files (%s): a version never changes once it has served; declare these as another version (`xebec deploy --new-version` takes the next one), or delete this one first", how)}}
}

// keepBytes lets versions that are declared keep the files that they have, where a manifest that is applied at the start finds others: what
// serves goes first. What is different is a problem that is shown.
func (d *Declarations) keepBytes(set *manifest.Set) {
	have := d.have(set)
	changed := map[api.ModelID]string{}
	for i := range set.Models {
		m := &set.Models[i]
		was := have[m.ID()]
		d.keepImage(m, was, changed)
		if was == nil || was.Digest == "" || m.Digest == "" || was.Digest == m.Digest {
			continue
		}
		if d.mayReplace(m.ID()) {
			continue
		}
		changed[m.ID()] = fmt.Sprintf("model %s in %s: %v; the version keeps the files that it has", m.ID(), m.Dir, d.otherBytes(was.Digest, m))
		d.cfg.Log.Error("the files of a version have changed: it keeps those that it has", zap.Stringer("model", m.ID()), zap.String("directory", m.Dir), zap.Error(d.otherBytes(was.Digest, m)))
		m.Digest = was.Digest
	}
	d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	d.edited = changed
}

func (d *Declarations) mayReplace(id api.ModelID) bool {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	v := s.Version(id)
	return v != nil && d.replaceable(s, v)
}

// Digested stores the digest of a version that was declared before versions had one. It does not block.
func (d *Declarations) Digested(id api.ModelID, digest string) {
	d.note(id, "the digest of a version", func(spec *api.ModelSpec) *string { return &spec.Digest }, digest)
}

// note stores what was learned of a version that its declaration lacks: the text of a field. It does not block.
func (d *Declarations) note(id api.ModelID, what string, field func(*api.ModelSpec) *string, text string) {
	if d.cfg.Background == nil {
		return
	}
	d.cfg.Background(func() {
		ctx := api.WithCaller(d.cfg.Life, api.Caller{Name: "digest"})
		_, err := d.change(ctx, false, func(s *versions.State) (*edit, error) {
			e := &edit{install: func(*versions.State) error { return nil }}
			v := s.Version(id)
			if v == nil || v.Source != versions.Applied || *field(v.Spec()) != "" {
				return e, nil
			}
			spec := *v.Spec()
			*field(&spec) = text
			c := api.Change{Kind: api.KindModel, Name: id.Name, Version: id.Version, Action: api.Updated}
			e.put.Models = []api.ModelSpec{spec}
			e.events = append(e.events, d.event(ctx, string(api.Updated), c, differences(changedFields(v.Spec().WithoutSecrets(), spec.WithoutSecrets()))))
			e.install = func(s *versions.State) error { return d.put(s, &e.put, nil, versions.Applied) }
			return e, nil
		})
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn(what+" is not stored yet: its next start takes it again", zap.Stringer("model", id), zap.Error(err))
		}
	})
}

// Digests names the files that versions have, whatever declares them.
func (d *Declarations) Digests() map[string]bool {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	all := map[string]bool{}
	for _, v := range s.Versions() {
		all[v.Digest()] = true
	}
	for _, spec := range d.displaced {
		all[spec.Digest] = true
	}
	for _, w := range d.watching {
		for _, t := range w.taken {
			all[t.digest] = true
		}
	}
	return all
}

// PythonDirs are the directories with the files of the versions that run the gateway's Python. Versions with the same files have one.
func (d *Declarations) PythonDirs() (dirs []string) {
	s := d.cfg.Catalog.Lock()
	var all []*versions.Version
	for _, v := range s.Versions() {
		if v.OwnPython() {
			all = append(all, v)
		}
	}
	d.cfg.Catalog.Unlock()
	seen := map[string]bool{}
	for _, v := range all { // this may read files
		key := v.Digest()
		if key == "" || key == api.DigestNone {
			key = v.Spec().Dir
		}
		if !seen[key] {
			seen[key] = true
			dirs = append(dirs, v.Files())
		}
	}
	return dirs
}

// nextVersion returns what a version's model, files and image are to be declared as: a version that has these already, or else the one behind the
// newest.
func nextVersion(f *versions.Family, m *api.ModelSpec) string {
	newest := ""
	for name, v := range f.Versions {
		is := *v.Spec()
		is.Digest, is.ImageDigest = v.Digest(), v.ImageDigest()
		if m.Digest != "" && m.Digest != api.DigestNone && is.Digest == m.Digest && is.Fixed(m) == "" {
			return name
		}
		if newest == "" || api.CompareVersions(name, newest) > 0 {
			newest = name
		}
	}
	return following(newest)
}

var lastNumber = regexp.MustCompile(`^(.*?)([0-9]{1,18})$`)

// following is the version after one: its last number is one more, or it gets a number.
func following(version string) string {
	if m := lastNumber.FindStringSubmatch(version); m != nil {
		if n, err := strconv.ParseUint(m[2], 10, 64); err == nil {
			if next := fmt.Sprintf("%s%0*d", m[1], len(m[2]), n+1); api.CompareVersions(next, version) > 0 && api.CheckVersion(next) == nil {
				return next
			}
		}
	}
	return version + ".2"
}
