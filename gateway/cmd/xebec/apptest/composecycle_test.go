package apptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// A cycle of calls that no declaration showed: one gateway has a model from a watched directory, which its store does not have, and another gateway
// with the same store declares the model that closes the cycle. Its own declarations show none, so it accepts. On the first gateway a call that would
// ask a model that waits for it ends at once, with the code cycle, and so does the query through the other model.
func TestACycleOfTwoSources(t *testing.T) {
	t.Parallel()
	aCycleOfTwoSources(t, serve, pythonModel(t, newDir(t), "a", callsProgram, "calls: [b]", uncached))
}

// aCycleOfTwoSources has the model a, which calls b, on gateways that start makes.
func aCycleOfTwoSources(t *testing.T, start func(*testing.T, ...string) *gateway, modelA string) {
	dir := newDir(t)
	redis := redistest.Start(t, redistest.Config{})
	watched := filepath.Join(newDir(t), "models")
	b := filepath.Join(watched, "b", "1")
	if err := os.MkdirAll(b, 0o755); err != nil {
		t.Fatal(err)
	}
	// Its function is declared with it: the one that a watched model gets by itself has 100 ms, which a busy machine may need for the call of a call.
	text := strings.TrimPrefix(pythonModel(t, b, "b", callsProgram, "calls: [a]", uncached)+function("b", "b", "slo: 60s"), "\n---\n")
	writeFile(t, b, "xebec.yaml", strings.Replace(text, "dir: "+b+"\n", "", 1))
	g := start(t, "--python", python(t), "--store", redis.URL(), "--models", watched, "--models-interval", often)
	g.awaitReplicas("b", 1)
	other := start(t, "--python", python(t), "--store", redis.URL())

	other.apply(modelA, function("a", "a", "slo: 60s"))
	g.awaitReplicas("a", 1)
	const query = `xebec.call("b", b"xebec.call('a', b'1')").decode()`
	want := `["a", "cycle", "call of 'a': a calls b calls a: a model cannot wait for itself (cycle)"]`
	if a := g.raw("a", query); !a.predicted() || a.text() != want {
		t.Errorf("a calls b, which calls a: %v\n got %s\nwant %s", a, a.text(), want)
	}
	if a := g.raw("a", `xebec.call("b", b"1 + 1").decode()`); !a.predicted() || a.text() != "2" {
		t.Errorf("a call of b that calls nothing: %v %s", a, a.text())
	}
	// From now on the gateway knows the cycle, and a declaration that has no part in it is accepted.
	g.apply(pythonModel(t, dir, "c", callsProgram, uncached), function("c", "c"))
}
