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
	"github.com/xebec-serving/xebec/containers/containerstest"
)

func TestSecretValue(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	longest := strings.Repeat("x", maxSecretBytes)
	put("line", "s3cret\n", 0o600)
	put("bare", "s3cret", 0o640)
	put("lines", "a\n\n", 0o600)
	put("dos", "a\r\n", 0o600)
	put("return", "a\r", 0o600)
	put("empty", "", 0o604)
	put("longest", longest, 0o600)
	put("longer", longest+"x", 0o600)
	put("nul", "s3cret\x00", 0o600)
	put("binary", "s3cret\xff", 0o600)
	if err := os.Symlink("line", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, value string
		open        bool
		err         string
	}{
		{"line", "s3cret", false, ""},
		{"bare", "s3cret", false, ""},
		{"lines", "a\n", false, ""},
		{"dos", "a", false, ""},
		{"return", "a\r", false, ""},
		{"empty", "", true, ""},
		{"link", "s3cret", false, ""},
		{"longest", longest, false, ""},
		{"longer", "", false, "has more than 65536 bytes: is it the right file?"},
		{"nul", "", false, "has a NUL byte at offset 6"},
		{"binary", "", false, "is not UTF-8 text"},
		{"missing", "", false, "missing: no such file or directory"},
		{".", "", false, "is not a regular file"},
		{"relative", "", false, "is relative, and the model has no directory: expected an absolute path"},
	} {
		path := filepath.Join(dir, c.path)
		if c.path == "relative" {
			path = c.path
		}
		value, open, err := secretValue(path)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: got %v, expected %q", c.path, err, c.err)
			}
		case err != nil || value != c.value || open != c.open:
			t.Errorf("%s: got %.20q, open %v (%v)", c.path, value, open, err)
		}
	}
}

// keeper starts nothing and tells how it was asked to.
type keeper struct {
	containerstest.Idle
	launches chan containers.Launch
}

func (k keeper) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	k.launches <- l
	return k.Idle.Start(ctx, l)
}

// A value is read at each start; without its file a start fails, and the status says which field is wrong. Only starts see values.
func TestValuesFromFiles(t *testing.T) {
	h := newHost(t)
	k := keeper{launches: make(chan containers.Launch, 1)}
	h.Runtime = k
	failed := make(chan struct{}, 16)
	h.Changed = func(string) { failed <- struct{}{} }
	spec := decoded(t, strings.Replace(sleeper, "model.py]}", "model.py], env: {A: b, KEY: {valueFrom: {file: key}}}}", 1))
	spec.Dir = t.TempDir()
	d, err := h.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background(), api.ShuttingDown); err != nil {
			t.Error(err)
		}
	})
	d.Load(1)
	<-failed
	const want = "run.env.KEY.valueFrom.file: cannot open the file: open "
	if m := d.Status(); !strings.Contains(m.Replicas[0].LastExit, want) || !strings.Contains(m.Conditions[0].Message, want) {
		t.Errorf("last exit %q, conditions %+v", m.Replicas[0].LastExit, m.Conditions)
	}
	path := filepath.Join(spec.Dir, "key")
	if err := os.WriteFile(path, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	l := <-k.launches
	if !slices.Equal(l.Env[:3], []string{"PYTHONUNBUFFERED=1", "A=b", "KEY=s3cret"}) || !slices.Equal(l.Secret, []string{"KEY"}) {
		t.Errorf("launch %+v", l)
	}
	if lines := d.Logs().TailOf(l.Replica, LogLines); len(lines) == 0 || !strings.Contains(lines[0].Text, "run.env.KEY: every user of this machine can read the file of its value: chmod o-rwx "+path) {
		t.Errorf("log: %+v", lines)
	}
	if shared := d.launch(); !slices.Equal(shared.Env, []string{"PYTHONUNBUFFERED=1", "A=b"}) {
		t.Errorf("what launches share has the environment %v", shared.Env)
	}
}

// A model with values from files has a zygote of its own. It is announced as it will be asked for: otherwise it would import twice.
func TestAModelWithValuesFromFilesHasItsOwnZygote(t *testing.T) {
	h := newHost(t)
	kind := func(name, file string) string {
		spec := api.ModelSpec{Name: name, Version: "1", Preload: []string{"numpy"}, Run: api.RunSpec{Command: []string{"python", "model.py"}}}
		if file != "" {
			spec.Run.Env = map[string]api.EnvValue{"KEY": {File: file}}
		}
		return h.preloadKind(&spec)
	}
	if kind("a", "") != kind("b", "") || kind("a", "/key") == kind("b", "/key") || kind("a", "/key") == kind("a", "") {
		t.Errorf("kinds %q, %q, %q, %q", kind("a", ""), kind("b", ""), kind("a", "/key"), kind("b", "/key"))
	}
	d := deploy(t, h, strings.Replace(sleeper, "model.py]}", "model.py], env: {A: b, KEY: {valueFrom: {file: /key}}}}", 1))
	if l := d.launch(); !slices.Equal(l.Secret, []string{"KEY"}) || !slices.Equal(l.Env, []string{"PYTHONUNBUFFERED=1", "A=b"}) {
		t.Errorf("announced as %+v", l)
	}
}

// Zygotes differ by isolation and network, and a strict model has none. Each that a launch will ask for is announced: otherwise the
// first launch waits for the imports, and the zygote of a model that is declared beside a strict one is ended.
func TestPreloadKindsDifferByIsolation(t *testing.T) {
	h := newHost(t)
	kinds := map[string]string{}
	for _, run := range []api.RunSpec{
		{}, {Isolation: api.IsolationNone}, {Network: api.NetworkHost}, {Isolation: api.IsolationNone, Network: api.NetworkHost},
	} {
		name := "isolation " + run.Isolation + ", network " + run.Network
		run.Command = []string{"python", "model.py"}
		kind := h.preloadKind(&api.ModelSpec{Name: "a", Version: "1", Preload: []string{"numpy"}, Run: run})
		if other := kinds[kind]; kind == "" || other != "" {
			t.Errorf("%s: kind %q, which is that of %q", name, kind, other)
		}
		kinds[kind] = name
	}
	strict := api.RunSpec{Isolation: api.IsolationStrict, Command: []string{"python", "model.py"}}
	if kind := h.preloadKind(&api.ModelSpec{Name: "a", Version: "1", Preload: []string{"numpy"}, Run: strict}); kind != "" {
		t.Errorf("a strict model has the zygote %q: expected none", kind)
	}
	written := api.RunSpec{Isolation: api.IsolationAuto, Network: api.NetworkNone, Command: []string{"python", "model.py"}}
	if kind := h.preloadKind(&api.ModelSpec{Name: "b", Version: "2", Preload: []string{"numpy"}, Run: written}); kinds[kind] != "isolation , network " {
		t.Errorf("defaults that are written down have the zygote %q: expected that of the defaults", kind)
	}
}

// Files together may not have more than one of them may have.
func TestValuesFromFilesHaveABound(t *testing.T) {
	h := newHost(t)
	spec := decoded(t, strings.Replace(sleeper, "model.py]}", "model.py], env: {A: {valueFrom: {file: a}}, B: {valueFrom: {file: a}}}}", 1))
	spec.Dir = t.TempDir()
	spec.Run.Env["B"] = api.EnvValue{File: filepath.Join(spec.Dir, "a")} // the same file
	if err := os.WriteFile(filepath.Join(spec.Dir, "a"), []byte(strings.Repeat("x", maxSecretBytes/2+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := h.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background(), api.ShuttingDown); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.secrets(1); err == nil || !strings.Contains(err.Error(), "run.env.B.valueFrom.file: with it the values from files take 65538 bytes: expected at most 65536 together") {
		t.Errorf("got %v", err)
	}
}
