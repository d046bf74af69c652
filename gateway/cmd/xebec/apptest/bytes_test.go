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

// times is a model that multiplies by a number in a file beside it.
const times = `
import xebec
factor = float(open("factor.txt").read())
xebec.serve(lambda batch: batch * factor)
`

func writeTimes(t *testing.T, dir, factor string) {
	t.Helper()
	writeFile(t, dir, "model.py", times)
	writeFile(t, dir, "factor.txt", factor)
	writeFile(t, dir, "xebec.yaml", `kind: Model
name: times
inputs:  [{name: input, dtype: float32, shape: [1]}]
outputs: [{name: output, dtype: float32, shape: [1]}]
cache: off
run: {command: [python, model.py]}
`)
}

// times asks the model what it makes of 1.
func (g *gateway) times(ref string) string {
	g.t.Helper()
	return strings.TrimSpace(g.must("invoke", ref, "--input", "[1]", "--slo", "60s"))
}

// again kills the replicas of a version and waits until another one is ready.
func (g *gateway) again(ref string) {
	g.t.Helper()
	before := map[int]bool{}
	for _, r := range g.version(ref).Replicas {
		before[r.PID] = true
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
			g.t.Fatal(err)
		}
	}
	g.await("another replica of "+ref, func(ctx context.Context) (bool, string) {
		m, err := g.versionStatus(ctx, ref)
		if err != nil {
			return false, err.Error()
		}
		for _, r := range m.Replicas {
			if r.State == api.ReplicaReady && !before[r.PID] {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", m.Replicas)
	})
}

// A version that was deployed answers the same whatever happens to the files that it came from: after an edit, the death of its replica,
// a restart, and the loss of its directory. The same version with other files is refused with what changed; --new-version makes the
// next one.
func TestAVersionIsItsBytes(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]string{"started": "", "forked": "preload: [json]\n", "plain": "", "manifest": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			source := filepath.Join(dir, "times")
			args := []string{"--python", python(t), "--data-dir", filepath.Join(dir, "data")}
			g := serveIn(t, dir, args...)
			writeTimes(t, source, "10")
			yaml := filepath.Join(source, "xebec.yaml")
			text, err := os.ReadFile(yaml)
			if err != nil {
				t.Fatal(err)
			}
			declared := string(text) + extra
			if name == "plain" {
				declared = plain(declared)
			}
			deploy := []string{"deploy", source}
			if name == "manifest" {
				if err := os.Remove(yaml); err != nil {
					t.Fatal(err)
				}
				yaml = filepath.Join(source, "models.yaml")
				deploy = []string{"apply", "--wait", "-f", yaml}
				declared += "---\nkind: Function\nname: times\nmodels: [times]\n"
			}
			writeFile(t, source, filepath.Base(yaml), declared)
			g.must(deploy...)
			if got := g.times("times"); got != "[10]" {
				t.Fatalf("it answers %s", got)
			}
			g.xebec(deploy...).wants(t, "deploy the same again", 0, "model times@1 unchanged", "")

			writeFile(t, source, "factor.txt", "20")
			writeFile(t, source, "more.txt", "more")
			g.again("times@1")
			if got := g.times("times"); got != "[10]" {
				t.Errorf("after an edit and the death of its replica it answers %s", got)
			}
			g.xebec(deploy...).wants(t, "deploy other files", 1, "", "factor.txt changed; more.txt added): a version never changes once it has served; declare these as another version (`xebec deploy --new-version`")
			g.stop()
			g = serveIn(t, dir, args...)
			if got := g.times("times"); got != "[10]" {
				t.Errorf("after a restart it answers %s", got)
			}

			if name == "manifest" {
				writeFile(t, source, "models.yaml", strings.Replace(declared, "name: times\n", "name: times\nversion: 2\n", 1))
				g.must(deploy...)
			} else {
				g.xebec("deploy", source, "--new-version", "--dry-run").wants(t, "try the next version", 0, "model times@2 created (dry run)", "")
				g.xebec("deploy", source, "--new-version").wants(t, "deploy the next version", 0, "model times@2 created", "")
				g.xebec("deploy", source, "--new-version").wants(t, "deploy the next version again", 0, "model times@2 unchanged", "")
			}
			g.await("version 2 to serve", func(context.Context) (bool, string) { got := g.times("times"); return got == "[20]", got })
			if err := os.RemoveAll(source); err != nil {
				t.Fatal(err)
			}
			g.again("times@1")
			g.again("times@2")
			if one, two := g.version("times@1"), g.version("times@2"); one.Spec.Digest == two.Spec.Digest || !strings.HasPrefix(one.Spec.Digest, "sha256:") {
				t.Errorf("the digests are %q and %q", one.Spec.Digest, two.Spec.Digest)
			}
			g.describes("times", "Digest:", "sha256:", "Interpreter:")
			g.must("rollback", "times")
			g.await("version 1 to serve again", func(context.Context) (bool, string) { got := g.times("times"); return got == "[10]", got })
		})
	}
}

// Above --snapshot-limit a version runs from its directory, and a replica does not start there when the files have changed.
func TestFilesAboveTheSnapshotLimit(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	source := filepath.Join(dir, "times")
	writeTimes(t, source, "10")
	g := serveIn(t, dir, "--python", python(t), "--data-dir", filepath.Join(dir, "data"), "--snapshot-limit", "0")
	g.must("deploy", source)
	if got := g.times("times"); got != "[10]" {
		t.Fatalf("it answers %s", got)
	}
	writeFile(t, source, "factor.txt", "20")
	for _, r := range g.version("times@1").Replicas {
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	g.await("the refusal to start", func(context.Context) (bool, string) {
		text := g.must("describe", "model", "times")
		return strings.Contains(text, "factor.txt changed: a version never changes"), text
	})
	g.xebec("deploy", source).wants(t, "deploy other files", 1, "", "factor.txt changed")
	writeFile(t, source, "factor.txt", "10")
	g.await("a replica", func(ctx context.Context) (bool, string) {
		m, err := g.versionStatus(ctx, "times@1")
		return err == nil && m.ReadyReplicas() > 0, fmt.Sprintf("%+v, %v", m.Replicas, err)
	})
	g.must("deploy", source)
}

// A watched version keeps the bytes that it was accepted with, also over a restart, and the change is a problem that is shown.
func TestWatchedVersionsAreTheirBytes(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	source := filepath.Join(dir, "models", "times", "1")
	writeTimes(t, source, "10")
	args := []string{"--python", python(t), "--data-dir", filepath.Join(dir, "data"), "--models", filepath.Join(dir, "models"), "--models-interval", "20ms"}
	g := serveIn(t, dir, args...)
	g.await("the model", func(ctx context.Context) (bool, string) {
		m, err := g.versionStatus(ctx, "times@1")
		return err == nil && m.ReadyReplicas() > 0, fmt.Sprint(m, err)
	})
	shown := func() {
		t.Helper()
		g.await("the problem to be shown", func(context.Context) (bool, string) {
			text := g.must("describe", "gateway")
			return strings.Contains(text, "factor.txt changed"), text
		})
		if text := g.logText(); !strings.Contains(text, "factor.txt changed") {
			t.Errorf("the log does not have the problem:\n%s", text)
		}
	}
	writeFile(t, source, "factor.txt", "20")
	shown()
	g.again("times@1")
	if got := g.times("times"); got != "[10]" {
		t.Errorf("after an edit it answers %s", got)
	}
	g.stop()
	g = serveIn(t, dir, args...)
	shown()
	if got := g.times("times"); got != "[10]" {
		t.Errorf("after a restart it answers %s", got)
	}
	writeFile(t, source, "factor.txt", "10")
	g.await("the problem to go", func(context.Context) (bool, string) {
		text := g.must("describe", "gateway")
		return !strings.Contains(text, "factor.txt changed"), text
	})
	// What is removed is gone: in its place may come another one.
	writeTimes(t, filepath.Join(dir, "models", "times", "2"), "30")
	g.await("version 2 to serve", func(context.Context) (bool, string) { got := g.times("times"); return got == "[30]", got })
}

// At a start, --config does not give a version other files: it keeps those that it has, and that is shown.
func TestConfigKeepsTheBytesOfVersions(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	source := filepath.Join(dir, "models", "times")
	writeTimes(t, source, "10")
	args := []string{"--python", python(t), "--data-dir", filepath.Join(dir, "data"), "--config", filepath.Join(dir, "models")}
	serveIn(t, dir, args...).stop()
	writeFile(t, source, "factor.txt", "20")
	g := serveIn(t, dir, args...)
	if got := g.times("times"); got != "[10]" {
		t.Errorf("after an edit and a restart it answers %s", got)
	}
	g.xebec("describe", "gateway").wants(t, "describe gateway", 0, "factor.txt changed", "")
}

// A replica's directory is read-only, and it may write where XEBEC_SCRATCH says.
func TestScratch(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	models := newDir(t)
	g := serveIn(t, dir, "--python", python(t), "--data-dir", filepath.Join(dir, "data"), "--config", manifest(t,
		pythonModel(t, models, "started", spyProgram, "preload: []", uncached), pythonModel(t, models, "forked", spyProgram, "preload: [json]", uncached),
		function("started", "started", "slo: 60s"), function("forked", "forked", "slo: 60s")))
	for _, name := range []string{"started", "forked"} {
		if a := g.raw(name, "open('x', 'w').write('x')"); !strings.Contains(a.text(), "denied") {
			t.Errorf("%s writes into its files: %v", name, a)
		}
		if a := g.raw(name, "open(os.environ['XEBEC_SCRATCH'] + '/x', 'w').write('x')"); a.text() != "1" {
			t.Errorf("%s cannot write to its scratch directory: %v", name, a)
		}
	}
}

// A trial says which directory, program, interpreter or image is not there.
func TestDryRunLooksForWhatAModelNeeds(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serveIn(t, dir, "--docker", "unix://"+filepath.Join(dir, "no.sock"))
	writeTimes(t, dir, "1")
	for what, says := range map[string]string{
		"dir: /nowhere\nrun: {command: [python, model.py]}\n":          "/nowhere is not on the gateway's host",
		"run: {command: [no-such-program]}\n":                          `run.command: command "no-such-program" not found`,
		"python: no-venv\nrun: {command: [python, model.py]}\n":        "python: ",
		"run: {image: no.such.registry.invalid/model, command: [x]}\n": "run.image: ",
	} {
		head := "kind: Model\nname: m\ninputs: [{name: input, dtype: float32, shape: [1]}]\noutputs: [{name: output, dtype: float32, shape: [1]}]\n"
		writeFile(t, dir, "xebec.yaml", head+what)
		g.xebec("deploy", dir, "--dry-run").wants(t, "try to deploy "+what, 1, "", says)
		g.xebec("apply", "--dry-run", "-f", filepath.Join(dir, "xebec.yaml")).wants(t, "try to apply "+what, 1, "", says)
	}
	writeTimes(t, dir, "1")
	g.xebec("deploy", dir, "--dry-run", "--new-version").wants(t, "try to deploy it", 0, "model times@1 created (dry run)", "")
	if g.must("get", "models", "-o", "json") != "[]\n" {
		t.Error("a trial has declared something")
	}
}

// A command on another host sends the files: the gateway sees none of the directory.
func TestDeployFromAnotherHost(t *testing.T) {
	t.Parallel()
	dir, there := newDir(t), newDir(t)
	args := []string{"--python", python(t), "--data-dir", filepath.Join(dir, "data")}
	g := serveIn(t, dir, args...)
	source := filepath.Join(there, "times")
	writeTimes(t, source, "10")
	writeFile(t, source, "weights", strings.Repeat("w", 5<<20)) // more than one part
	g.xebec("deploy", source, "--upload", "--dry-run").wants(t, "try to deploy", 0, "model times@1 created (dry run)", "")
	g.must("deploy", source, "--upload")
	g.xebec("deploy", source, "--upload").wants(t, "deploy the same", 0, "model times@1 unchanged", "")
	writeFile(t, source, "factor.txt", "20")
	g.xebec("deploy", source, "--upload").wants(t, "deploy other files", 1, "", "factor.txt changed")
	g.xebec("deploy", source, "--upload", "--new-version").wants(t, "deploy a new version", 0, "model times@2 created", "")
	if err := os.RemoveAll(there); err != nil {
		t.Fatal(err)
	}
	g.again("times@1")
	g.await("version 2 to serve", func(context.Context) (bool, string) { got := g.times("times"); return got == "[20]", got })
	g.stop()
	g = serveIn(t, dir, args...)
	// Version 1 may be ready first, and serves until version 2 is.
	g.await("version 2 to serve after the restart", func(context.Context) (bool, string) { got := g.times("times"); return got == "[20]", got })
	g.must("rollback", "times")
	g.await("version 1 to serve again", func(context.Context) (bool, string) { got := g.times("times"); return got == "[10]", got })

	// An export shows where the files are. Another gateway that has them there takes it.
	export := g.xebec("export")
	export.wants(t, "export", 0, "dir: "+filepath.Join(dir, "data", "snapshots")+"/", "times@1, times@2: the files were sent to the gateway")
	if strings.Contains(export.out, there) {
		t.Errorf("the export names a directory of the sender's host:\n%s", export.out)
	}
	elsewhere := newDir(t)
	writeFile(t, elsewhere, "export.yaml", export.out)
	h := serveIn(t, elsewhere, "--python", python(t), "--data-dir", filepath.Join(elsewhere, "data"))
	h.must("apply", "--wait", "-f", filepath.Join(elsewhere, "export.yaml"))
	if got := h.times("times"); got != "[10]" {
		t.Errorf("another gateway answers %s", got)
	}
}
