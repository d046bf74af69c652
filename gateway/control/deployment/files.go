package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"go.uber.org/zap"
)

// TreeOptions say what in the model's directory is not part of its version: the files with secret values, which may be renewed, and
// manifests, which are compared by themselves.
func TreeOptions(spec *api.ModelSpec) (o snapshot.Options) {
	for _, name := range secretNames(spec) {
		o.Exclude = append(o.Exclude, spec.Run.Env[name].File)
	}
	o.Exclude = append(o.Exclude, manifestsIn(spec.Dir)...)
	return o
}

// manifestHead finds the first lines of a manifest, in YAML and in JSON.
var manifestHead = regexp.MustCompile(`(?m)^[\s\[{]*"?kind"?\s*:\s*"?(Model|Function|Traffic)\b`)

const (
	// manifestHeadBytes is where a manifest's kind is looked for.
	manifestHeadBytes = 64 << 10
	// maxBeside bounds the files that are looked at in a directory, which may be any.
	maxBeside = 4096
)

// manifestsIn lists the manifests that lie in a directory itself.
func manifestsIn(dir string) (found []string) {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxBeside)
	slices.Sort(names)
	for _, name := range names {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) && isManifest(filepath.Join(dir, name)) {
			found = append(found, name)
		}
	}
	return found
}

func isManifest(path string) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, manifestHeadBytes))
	return err == nil && manifestHead.Match(head)
}

// Owns reports whether the files in a model's directory are the model's own. Those in a model directory are, those in a directory that
// the manifest names, and those where the command finds a file. Without that, a directory is only where a manifest happened to lie: base,
// or one that has manifests in it.
func Owns(spec *api.ModelSpec, base string) bool {
	if spec.Dir == "" {
		return false
	}
	if _, err := os.Stat(filepath.Join(spec.Dir, manifest.ModelFile)); err == nil {
		return true
	}
	for i, word := range spec.Run.Command {
		names := []string{word}
		if i > 0 && spec.Run.Command[i-1] == "-m" { // python -m package.module
			module := strings.ReplaceAll(word, ".", "/")
			names = []string{module + ".py", module}
		}
		for _, name := range names {
			if !filepath.IsLocal(name) || name == "." || i == 0 && !strings.Contains(name, "/") {
				continue
			}
			if _, err := os.Stat(filepath.Join(spec.Dir, name)); err == nil {
				return true
			}
		}
	}
	return spec.Dir != base && len(manifestsIn(spec.Dir)) == 0
}

// Digest names the files that the version's replicas run from; empty: it is not known yet.
func (d *Deployment) Digest() string {
	if digest := d.Spec().Digest; digest != "" {
		return digest
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.adopted
}

// place returns the directory in which a replica runs: the copy of the version's files, or where there can be none its directory, if
// that still has the same files. A version that was stored without a digest gets one now.
func (d *Deployment) place(ctx context.Context) (string, error) {
	spec, store := d.Spec(), d.h.Snapshots
	digest := d.Digest()
	if store == nil || spec.Dir == "" || digest == api.DigestNone {
		return d.dir(), nil
	}
	if digest == "" {
		return d.adopt(ctx, spec)
	}
	dir, err := store.Dir(ctx, digest)
	var notKept *snapshot.NotKeptError
	if !errors.As(err, &notKept) {
		return dir, err
	}
	if err := store.Check(ctx, spec.Dir, TreeOptions(spec), digest); err != nil {
		return "", d.cannotPlace(ctx, digest, err)
	}
	added, err := store.Add(ctx, spec.Dir, TreeOptions(spec))
	switch {
	case err != nil:
		return "", err
	case added.Digest != digest:
		return "", fmt.Errorf("the files in %s changed while they were copied: try again", spec.Dir)
	case !added.Kept:
		return spec.Dir, nil
	}
	return store.Dir(ctx, digest)
}

// cannotPlace says why a version's files cannot be had, and what to do.
func (d *Deployment) cannotPlace(ctx context.Context, digest string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var differs *snapshot.DiffersError
	if errors.As(err, &differs) {
		return fmt.Errorf("%w: a version never changes; put the files back, or declare them as another version", err)
	}
	return fmt.Errorf("no copy of its files (%s) is kept, and its directory cannot be read: %w", digest, err)
}

// adopt takes the digest of a version that was declared before versions had one. Files that can have none do not keep it from serving:
// it has served before.
func (d *Deployment) adopt(ctx context.Context, spec *api.ModelSpec) (string, error) {
	d.adopting.Lock() // replicas that start together take one digest
	defer d.adopting.Unlock()
	if d.Digest() != "" {
		d.adopting.Unlock()
		dir, err := d.place(ctx)
		d.adopting.Lock()
		return dir, err
	}
	digest, dir := api.DigestNone, spec.Dir
	if Owns(spec, "") {
		added, err := d.h.Snapshots.Add(ctx, spec.Dir, TreeOptions(spec))
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			d.h.Log.Warn("a version has no digest, so an edit of its files changes it: it was declared before versions had one, and its files cannot be taken", zap.Stringer("model", d.id), zap.Error(err))
			return spec.Dir, nil
		}
		digest = added.Digest
		if added.Kept {
			if dir, err = d.h.Snapshots.Dir(ctx, digest); err != nil {
				return "", err
			}
		}
	}
	d.mu.Lock()
	d.adopted = digest
	d.mu.Unlock()
	if d.h.Digested != nil {
		d.h.Digested(d.id, digest)
	}
	return dir, nil
}

// Files is the directory with the version's files: the copy where there is one.
func (d *Deployment) Files() string { return cmp.Or(d.h.Copy(d.Digest()), d.Spec().Dir) }

// Copy is the directory of the copy that is kept of the files with a digest; empty: there is none.
func (h *Host) Copy(digest string) string {
	if h.Snapshots == nil || digest == "" || digest == api.DigestNone {
		return ""
	}
	dir, err := h.Snapshots.Dir(context.Background(), digest)
	if err != nil {
		return ""
	}
	return dir
}

// Interpreter is the program that a model's command runs if that is Python, with links resolved; empty: it runs another one, or that
// cannot be found.
func (h *Host) Interpreter(spec *api.ModelSpec) string {
	if spec.Run.Image != "" || len(spec.Run.Command) == 0 || spec.Run.Command[0] != "python" && spec.Run.Command[0] != "python3" {
		return ""
	}
	path, err := exec.LookPath(h.command(spec)[0])
	if err != nil {
		return ""
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// Check says what of a new version is not there: its program, the interpreter that it names, or its image. The error is nil or
// api.FieldErrors.
func (h *Host) Check(ctx context.Context, spec *api.ModelSpec) error {
	l := containers.Launch{Model: spec.ID(), Dir: spec.Dir, Command: h.command(spec), Image: spec.Run.Image, ImageDigest: spec.ImageDigest, Env: environment(spec)}
	if l.Dir == "" && l.Image == "" {
		l.Dir = h.WorkDir
	}
	checker, ok := containers.As[containers.Checker](h.Runtime, l)
	if !ok {
		return nil
	}
	err := checker.Check(ctx, l)
	path := "run.command"
	switch {
	case err == nil:
		return nil
	case spec.Run.Image != "":
		path = "run.image"
	case spec.Python != "" && l.Command[0] != spec.Run.Command[0]:
		path = "python"
	}
	return api.FieldErrors{{Path: path, Message: err.Error()}}
}

// CheckRequirements says what is wrong with the Python packages that a new version asks for, as far as that can be said without a package index. files
// is where its files lie. The error is nil or api.FieldErrors.
func (h *Host) CheckRequirements(spec *api.ModelSpec, files string) error {
	if h.CheckEnvironment == nil || files == "" || !ownPython(spec) {
		return nil
	}
	if err := h.CheckEnvironment(files); err != nil {
		return api.FieldErrors{{Path: "dir", Message: strings.ReplaceAll(err.Error(), files, spec.Dir)}}
	}
	return nil
}

// scratch is the directory that replicas of a spec may write to: XEBEC_SCRATCH. An isolated process has temporary directories of its own,
// of which a fork of a zygote can only write to /var/tmp; a container has /tmp.
func scratch(spec *api.ModelSpec) string {
	switch {
	case spec.Run.Image != "":
		return "/tmp"
	case spec.Run.Isolation == api.IsolationNone:
		return os.TempDir()
	case len(spec.Preload) > 0:
		return "/var/tmp"
	}
	return "/tmp"
}
