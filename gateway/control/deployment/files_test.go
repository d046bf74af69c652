package deployment

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/snapshot"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A version that was declared before versions had digests gets one when its first replica starts, and keeps these files.
func TestDigestAtTheFirstStart(t *testing.T) {
	h := newHost(t)
	k := keeper{launches: make(chan containers.Launch, 1)}
	h.Runtime = k
	store, err := snapshot.Open(snapshot.Config{Dir: filepath.Join(t.TempDir(), "snapshots"), LimitBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h.Snapshots = store
	digested := make(chan string, 1)
	h.Digested = func(_ api.ModelID, digest string) { digested <- digest }
	h.Changed = func(string) {}
	spec := decoded(t, sleeper)
	spec.Dir = t.TempDir()
	write(t, filepath.Join(spec.Dir, "model.py"), "one")
	write(t, filepath.Join(spec.Dir, "notes.txt"), "notes")
	d, err := h.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background(), api.ShuttingDown); err != nil {
			t.Error(err)
		}
		if _, err := store.Collect(nil, d.created.AddDate(1, 0, 0)); err != nil { // read-only directories
			t.Error(err)
		}
	})
	d.Load(1)
	first := <-k.launches
	if digest := <-digested; digest != d.Digest() || !strings.HasPrefix(digest, snapshot.Prefix) {
		t.Errorf("the digest is %q, and %q", digest, d.Digest())
	}
	write(t, filepath.Join(spec.Dir, "model.py"), "two")
	d.Load(2)
	second := <-k.launches
	if second.Dir != first.Dir || first.Dir == spec.Dir || d.Files() != first.Dir {
		t.Errorf("replicas run in %s and %s", first.Dir, second.Dir)
	}
	if text, err := os.ReadFile(filepath.Join(second.Dir, "model.py")); string(text) != "one" {
		t.Errorf("the second replica sees %q (%v)", text, err)
	}
}

func TestWhoseFilesADirectoryHas(t *testing.T) {
	const manifest = "# a comment\nkind: Model\nname: m\n"
	for name, c := range map[string]struct {
		files   []string
		command string
		base    bool // the manifest lies there
		want    bool
	}{
		"a model directory":                     {[]string{"xebec.yaml"}, "/bin/serve", true, true},
		"the command names a file":              {[]string{"models.yaml", "model.py"}, "python model.py", true, true},
		"the command names a module":            {[]string{"models.yaml", "serve.py"}, "python -m serve", true, true},
		"the program lies there":                {[]string{"models.yaml", "serve"}, "./serve", true, true},
		"a program of the system":               {[]string{"models.yaml", "python"}, "python -m http.server", true, false},
		"only a manifest":                       {[]string{"models.yaml", "other.py"}, "/bin/serve --port 1", true, false},
		"only a manifest, from elsewhere":       {[]string{"models.json", "other.py"}, "/bin/serve", false, false},
		"stdin, in any directory":               {[]string{"thesis.txt"}, "/bin/serve", true, false},
		"a directory that the manifest names":   {[]string{"weights.bin"}, "/bin/serve", false, true},
		"the command names a file somewhere up": {[]string{"models.yaml"}, "python ../model.py", true, false},
	} {
		spec := api.ModelSpec{Dir: t.TempDir(), Run: api.RunSpec{Command: strings.Fields(c.command)}}
		for _, file := range c.files {
			write(t, filepath.Join(spec.Dir, file), manifest)
		}
		base := ""
		if c.base {
			base = spec.Dir
		}
		if got := Owns(&spec, base); got != c.want {
			t.Errorf("%s: the directory is the model's own: %v", name, got)
		}
	}
}

// Secrets and manifests in a model's directory are not its files: a secret is renewed, and a manifest compared by itself.
func TestSecretsAndManifestsAreNotFiles(t *testing.T) {
	spec := api.ModelSpec{Name: "m", Dir: t.TempDir(), Run: api.RunSpec{Env: map[string]api.EnvValue{"KEY": {File: "key"}, "A": {Value: "b"}}}}
	digest := func() string {
		t.Helper()
		tree, err := snapshot.Scan(t.Context(), spec.Dir, TreeOptions(&spec))
		if err != nil {
			t.Fatal(err)
		}
		return tree.Digest
	}
	write(t, filepath.Join(spec.Dir, "labels.json"), `{"kind": "of label"}`)
	before := digest()
	write(t, filepath.Join(spec.Dir, "key"), "s3cret")
	write(t, filepath.Join(spec.Dir, "models.yaml"), "kind: Model\n")
	write(t, filepath.Join(spec.Dir, "models.json"), `[{"kind": "Model"}]`)
	if digest() != before {
		t.Error("a secret or a manifest counts")
	}
	write(t, filepath.Join(spec.Dir, "labels.json"), `{"kind": "of labels"}`)
	if digest() == before {
		t.Error("a file in JSON does not count")
	}
}

// announced is a runtime that keeps the last launches that were announced to it.
type announced struct {
	keeper
	preloads *[]containers.Launch
}

func (a announced) Preload(launches []containers.Launch) { *a.preloads = launches }
func (announced) Zygotes() []int                         { return nil }

// What is announced of a version in a container is its launch: a container that waits with the version's directory instead of its
// copy is not what a launch asks for, and would wait in vain.
func TestAnnouncedContainersHaveTheDirectoryOfTheirLaunches(t *testing.T) {
	h := newHost(t)
	var launches []containers.Launch
	k := announced{keeper{launches: make(chan containers.Launch, 1)}, &launches}
	h.Runtime = k
	store, err := snapshot.Open(snapshot.Config{Dir: filepath.Join(t.TempDir(), "snapshots"), LimitBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h.Snapshots = store
	spec := decoded(t, strings.Replace(sleeper, "{command: [python, model.py]}", "{image: xebec-python}\npreload: [numpy]", 1))
	spec.Dir = t.TempDir()
	write(t, filepath.Join(spec.Dir, "model.py"), "one")
	added, err := store.Add(t.Context(), spec.Dir, TreeOptions(&spec))
	if err != nil {
		t.Fatal(err)
	}
	spec.Digest = added.Digest
	d, err := h.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background(), api.ShuttingDown); err != nil {
			t.Error(err)
		}
		if _, err := store.Collect(nil, d.created.AddDate(1, 0, 0)); err != nil { // read-only directories
			t.Error(err)
		}
	})
	h.FollowDeclared(t.Context(), slices.Values([]*Deployment{d}), func(func()) {})
	d.Load(1)
	if launch := <-k.launches; len(launches) != 1 || launches[0].Dir != launch.Dir || launch.Dir == spec.Dir {
		t.Errorf("announced %+v, launched in %s", launches, launch.Dir)
	}
}
