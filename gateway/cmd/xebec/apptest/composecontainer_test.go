package apptest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// containerModel is pythonModel in a container of the ready-made image. Its user can read dir.
func containerModel(t *testing.T, dir, name, program string, extra ...string) string {
	t.Helper()
	run := fmt.Sprintf("run: {image: %q, command: [python3, ", "xebec-python:"+os.Getenv(envImages))
	return strings.Replace(pythonModel(t, dir, name, program, extra...), "run: {command: [python, ", run, 1)
}

// A model in a container calls functions of models outside it and in another container. Its calls carry what those of a process carry, and errors
// have the same words.
func containersCall(t *testing.T, e *engine) {
	needImages(t)
	dir := openDir(t)
	const fan = `
import asyncio, xebec

async def predict(batch):
    return [b" ".join(await asyncio.gather(*(xebec.acall("upper", word) for word in query.split()))) for query in batch]

xebec.serve(predict)
`
	g := e.serve(t, "--python", python(t), "--config", manifest(t,
		pythonModel(t, dir, "told", toldProgram, uncached)+function("told", "told", "slo: 300s"),
		containerModel(t, dir, "upper", "import xebec\nxebec.serve(lambda batch: [text.upper() for text in batch])\n", uncached)+function("upper", "upper", "slo: 60s"),
		containerModel(t, dir, "code", callsProgram, "calls: [told, upper]", uncached)+function("code", "code", "slo: 300s"),
		containerModel(t, dir, "fan", fan, "calls: [upper]", uncached)+function("fan", "fan", "slo: 60s")))
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := g.raw("code", `xebec.call("told", b"x").decode()`, "X-Request-Id", "r-17", "Traceparent", trace, "Xebec-Context", "ann", "Xebec-Slo-Ms", "60000")
	var seen struct {
		ID, Trace, Context string
		Left               float64
	}
	if err := json.Unmarshal([]byte(a.text()), &seen); err != nil || seen.ID != "r-17" || seen.Trace != trace || seen.Context != "ann" || seen.Left <= 0 || seen.Left > 60 {
		t.Errorf("the callee sees %+v (%v, %v)", seen, a, err)
	}
	large := strings.Repeat("x", 300_000) // more than one write on the line
	for _, c := range []struct{ code, want string }{
		{`xebec.call.many("upper", [b"a", b"b"])`, "[b'A', b'B']"},
		{`len(xebec.call("upper", b"` + large + `"))`, "300000"},
		{`xebec.call("fan", b"x")`, `["fan", "forbidden", "call of 'fan': code calls \"fan\", which its manifest does not declare: add it to calls (forbidden)"]`},
	} {
		if a := g.raw("code", c.code); !a.predicted() || a.text() != c.want {
			t.Errorf("%.60s: %v\n got %.300s\nwant %s", c.code, a, a.text(), c.want)
		}
	}
	if a := g.raw("fan", "a b c d e f g h"); !a.predicted() || a.text() != "A B C D E F G H" {
		t.Errorf("calls at once: %v", a)
	}
	out := manifest(t, version(containerModel(t, dir, "upper", "", "calls: [code]"), "2"))
	g.xebec("apply", "-f", out).wants(t, "a declaration that closes a cycle", 1, "", "code calls upper calls code")
}

// As TestACycleOfTwoSources, with a model in a container that closes the cycle.
func containersCallInACycle(t *testing.T, e *engine) {
	needImages(t)
	dir := openDir(t)
	aCycleOfTwoSources(t, e.serve, containerModel(t, dir, "a", callsProgram, "calls: [b]", uncached))
}
