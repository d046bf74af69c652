package apptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A backup of a gateway with watched models can be applied to a gateway without them, and its whole text, comments
// included, to one that watches them too.
func TestExportWithWatchedModels(t *testing.T) {
	t.Parallel()
	models := newDir(t)
	watchable(t, models, "w", "1", "noop")
	g := serve(t, "--models", models)
	g.await("the watched model", answers(g, "w", 0, "w@1"))
	g.apply(number("m", "echo"), function("f", "m", "slo: 60s"), function("g", "w", "slo: 60s"), function("h", "m", "slo: 60s", "shadow: {w: 0.5}"),
		traffic("m", `labels: {good: "1"}`), traffic("w", `labels: {good: "1"}`))

	file := filepath.Join(newDir(t), "backup.yaml")
	r := g.xebec("export", "--file", file)
	for _, says := range []string{"function g", "function h", "traffic w", "watched"} {
		r.wants(t, "export", 0, "", says)
	}
	bare := serve(t)
	bare.must("apply", "-f", file, "--wait")
	if a := bare.ask("f", 7, ""); a.number() != 7 {
		t.Errorf("after applying the backup f answers %v", a)
	}
	r = g.xebec("export", "-o", "json")
	r.wants(t, "export -o json", 0, "", "traffic w")
	if r = bare.xebecIn("", r.out, "apply", "-f", "-"); r.status != 0 || strings.Contains(r.out, "created") {
		t.Errorf("applying the JSON backup has status %d and prints %s%s", r.status, r.out, r.err)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), "# The objects below")
	_, rest, _ = strings.Cut(rest, "apply the file.\n")
	if !found {
		t.Fatalf("the backup has no comments:\n%s", text)
	}
	whole := filepath.Join(newDir(t), "whole.yaml")
	if err := os.WriteFile(whole, []byte(head+strings.ReplaceAll("\n"+rest, "\n# ", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	bare.xebec("apply", "-f", whole).wants(t, "apply all of it without the watched models", 1, "", "w")
	again := serve(t, "--models", models)
	again.await("the watched model", answers(again, "w", 0, "w@1"))
	again.must("apply", "-f", whole, "--wait")
	if a := again.ask("g", 7, ""); !a.predicted() || a.Models[0] != "w@1" {
		t.Errorf("after applying all of the backup g answers %v", a)
	}
	if got, want := again.must("export"), g.must("export"); got != want {
		t.Errorf("after applying all of the backup the export is\n%s\nexpected\n%s", got, want)
	}
}
