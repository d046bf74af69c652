package apptest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// watchable puts a version of a model into the directory of --models. mode is the worker's: "noop" or "echo".
func watchable(t *testing.T, dir, name, version, mode string) {
	t.Helper()
	writeFile(t, dir, filepath.Join(name, version, "xebec.yaml"), fmt.Sprintf(`kind: Model
name: %s
version: %q
inputs:  [{name: input, dtype: int64, shape: []}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [%q, -mode, %s]}
`, name, version, programs.worker, mode))
}

// Two models of one name, from the store or --config and from a watched directory: the declared one serves, and so do the
// directory's other models. `describe gateway` says what is wrong and what to do. When the declared one is deleted the
// directory's serves.
func TestOneNameFromTwoSources(t *testing.T) {
	t.Parallel()
	models := newDir(t)
	watchable(t, models, "m", "1", "noop")
	watchable(t, models, "other", "1", "noop")
	declared := manifest(t, number("m", "echo"), function("f", "m", "slo: 60s"))
	data := newDir(t)
	first := serve(t, "--data-dir", data)
	first.must("apply", "-f", declared, "--wait")
	first.stop()
	for _, c := range []struct {
		what string
		args []string
		last bool
	}{
		{"the store", []string{"--data-dir", data}, false},
		{"--config", []string{"--config", declared}, false},
		{"both again", []string{"--data-dir", data, "--config", declared}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := serve(t, append(c.args, "--models", models)...)
			if a := g.ask("f", 5, ""); a.number() != 5 {
				t.Errorf("f answers %v: expected the declared model", a)
			}
			g.await("the directory's other model", func(ctx context.Context) (bool, string) {
				a, err := g.tryAsk(ctx, "other", 5, "")
				return err == nil && a.predicted(), fmt.Sprint(a, err)
			})
			text := g.must("describe", "gateway")
			for _, says := range []string{models, "model m", "apply", "remove one"} {
				if !strings.Contains(text, says) {
					t.Errorf("describe gateway does not say %q:\n%s", says, text)
				}
			}
			if !c.last {
				return
			}
			g.must("delete", "function", "f")
			g.must("delete", "model", "m")
			g.await("the directory's model to serve", func(ctx context.Context) (bool, string) {
				a, err := g.tryAsk(ctx, "m", 5, "")
				return err == nil && a.predicted() && a.number() == 0, fmt.Sprint(a, err)
			})
			if text := g.must("describe", "gateway"); strings.Contains(text, "remove one") {
				t.Errorf("with one source left describe gateway prints:\n%s", text)
			}
			g.xebec("apply", "-f", declared).wants(t, "apply beside the directory", 1, "", models)
		})
	}
}

// Rules for a model of a watched directory are stored too. After SIGKILL a rollback is still in force, although the
// directory's newest version is the bad one, and labels and functions resolve as before.
func TestRulesOfWatchedModelsSurviveKill(t *testing.T) {
	t.Parallel()
	models := newDir(t)
	watchable(t, models, "m", "1", "echo")
	args := []string{"--data-dir", newDir(t), "--models", models, "--models-interval", "20ms"}
	g := serve(t, args...)
	g.await("version 1", answers(g, "m", 7, "m@1"))
	g.apply(function("f", "m", "slo: 60s"), traffic("m", "versions: {latest: 2}"))
	watchable(t, models, "m", "2", "noop")
	g.await("version 2", answers(g, "f", 0, "m@2"))
	g.apply(traffic("m", "versions: {latest: 2}", `labels: {good: "1"}`), function("labelled", "m@good", "slo: 60s"))
	g.must("rollback", "m", "--reason", "answers nothing", "--wait")
	g.await("version 1 again", answers(g, "f", 7, "m@1"))
	export, history := g.must("export"), g.must("history", "-o", "json")
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)

	g = serve(t, args...)
	if now := g.must("export"); now != export {
		t.Errorf("before the kill the export was\n%s\nand after it\n%s", export, now)
	}
	if now := g.must("history", "-o", "json"); now != history {
		t.Errorf("before the kill the history was\n%s\nand after it\n%s", history, now)
	}
	for _, f := range []string{"m", "f", "labelled"} {
		g.await("version 1 from "+f+" after the kill", answers(g, f, 7, "m@1"))
	}
	g.awaitPhase("m@2", api.PhaseDeclared)
	watchable(t, models, "m", "3", "noop")
	g.await("version 3, which ends the rollback", answers(g, "f", 0, "m@3"))
	g.await("the label's version", answers(g, "labelled", 7, "m@1"))
}
