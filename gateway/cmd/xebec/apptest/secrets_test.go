package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// envProgram answers a query, the name of a variable, with the variable and with what its zygote saw of it.
const envProgram = `
import os, seen
import xebec

xebec.serve(lambda batch: [("%s %s" % (os.environ.get(q.decode()), seen.early.get(q.decode()))).encode() for q in batch])
`

// Models get values of their environment from the manifest and from files. The former are shown only to those who ask for them, the
// latter never. What is masked cannot be declared, and what is not survives a restart and can be declared elsewhere.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const literal, first, second = "literal-s3cret", "first-s3cret", "second-s3cret"
	models, dir := newDir(t), newDir(t)
	key, data := filepath.Join(models, "key"), filepath.Join(dir, "data")
	put := func(value string) {
		t.Helper()
		if err := os.WriteFile(key+".new", []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(key+".new", key); err != nil {
			t.Fatal(err)
		}
	}
	put(first)
	writeFile(t, models, "seen.py", "import os\nearly = dict(os.environ)\n")
	m := pythonModel(t, models, "m", envProgram, uncached, "preload: [seen]", sleepy)
	m = strings.Replace(m, "m.py]", fmt.Sprintf("m.py], env: {PYTHONPATH: %s, LITERAL: %s, KEY: {valueFrom: {file: key}}}", models, literal), 1)
	declared := manifest(t, m, function("f", "m", "slo: 60s"))
	args := []string{"--python", python(t), "--data-dir", data}
	g := serveIn(t, dir, args...)
	asks := func(g *gateway, name, want string) {
		t.Helper()
		if a := g.raw("f", name); a.text() != want {
			t.Errorf("the model sees %s as %v, expected %s", name, a, want)
		}
	}
	g.must("apply", "-f", declared, "--wait")
	asks(g, "LITERAL", literal+" "+literal)
	asks(g, "KEY", first+" None") // not the zygote's
	g.must("scale", "m", "--min", "1", "--max", "1")
	g.awaitReplicas("m", 1)

	shows := [][]string{
		{"export"}, {"export", "-o", "json"}, {"get", "models", "-o", "yaml"}, {"get", "model", "m", "-o", "json"},
		{"describe", "model", "m"}, {"describe", "model", "m", "-o", "json"}, {"describe", "function", "f", "-o", "json"},
	}
	for _, command := range append(shows, []string{"history", "-o", "json"}, []string{"describe", "gateway", "-o", "json"}, []string{"logs", "m"}) {
		if r := g.xebec(command...); r.status != 0 || strings.Contains(r.out+r.err, "s3cret") {
			t.Errorf("%v prints\n%s%s", command, r.out, r.err)
		}
	}
	for _, command := range shows {
		r := g.xebec(append(command, "--show-secrets")...)
		if r.status != 0 || strings.Contains(r.out+r.err, first) || !strings.Contains(r.out, literal) {
			t.Errorf("%v --show-secrets prints\n%s%s", command, r.out, r.err)
		}
	}
	g.describes("m", "LITERAL, masked", "KEY from the file key")
	for _, format := range []string{"yaml", "json"} {
		r := g.xebec("export", "-o", format)
		r.wants(t, "export", 0, "masked", "2 values of environment variables are masked, so this export cannot be applied: --show-secrets includes them")
		g.xebecIn(g.dir, r.out, "apply", "-f", "-").wants(t, "apply of a masked export", 1, "", "run.env.LITERAL: the value is masked")
	}
	if stored, err := os.ReadFile(filepath.Join(data, "state.db")); err != nil || !strings.Contains(string(stored), literal) || strings.Contains(string(stored), first) {
		t.Errorf("the store is expected to have the literal value, and not the file's (%v)", err)
	}

	// Another value is the next replica's.
	kill := func() {
		t.Helper()
		if err := syscall.Kill(g.awaitReplicas("m", 1).Replicas[0].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	put(second)
	kill()
	g.await("the new value", func(ctx context.Context) (bool, string) {
		a := g.raw("f", "KEY")
		return strings.HasPrefix(a.text(), second), a.String() // it may be started without the zygote
	})
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	kill()
	g.awaitModel("m", "the reason", func(m api.ModelStatus) bool {
		return strings.Contains(m.Replicas[0].LastExit, "run.env.KEY.valueFrom.file")
	})
	g.describes("m", "run.env.KEY.valueFrom.file: cannot open the file: open "+key+": no such file or directory")
	put(first)
	g.awaitReplicas("m", 1)

	export := g.must("export", "--show-secrets")
	g.stop()
	if log := g.logText(); strings.Contains(log, "s3cret") || !strings.Contains(log, "secrets are read") {
		t.Errorf("the log says\n%s", log)
	}
	again := serveIn(t, dir, args...)
	asks(again, "LITERAL", literal+" "+literal)
	again.must("apply", "-f", declared)
	other := serve(t, "--python", python(t))
	other.xebecIn(other.dir, export, "apply", "-f", "-", "--wait").wants(t, "apply of an export with secrets", 0, "m@1 created", "")
	other.await("the value on another gateway", func(ctx context.Context) (bool, string) {
		a := other.raw("f", "KEY")
		return strings.HasPrefix(a.text(), first), a.String()
	})
}
