package apptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// systemPython is an interpreter that every user of the machine may run, which those of a virtual environment in a home directory are not.
const systemPython = "/usr/bin/python3"

// strictModel is pythonModel with isolation: strict and systemPython. The binding's sources lie beside the program.
func strictModel(t *testing.T, dir, name, program string, extra ...string) string {
	t.Helper()
	if _, err := os.Stat(systemPython); err != nil {
		t.Fatalf("%v: the test needs the system's Python (on Debian, apt-get install python3)", err)
	}
	if err := os.CopyFS(filepath.Join(dir, "xebec"), os.DirFS(filepath.Join(programs.repo, "worker/bindings/python/src/xebec"))); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	m := pythonModel(t, dir, name, program, extra...)
	return strings.Replace(m, "run: {command: [python, ", "run: {isolation: strict, command: ["+systemPython+", ", 1)
}

// A model with isolation: strict calls others as any other model does: its calls are no network. Where the machine lacks a layer, its replica is
// not started, and describe names the layer.
func TestCallsUnderStrictIsolation(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "xebec-strict-") // as root, the replica has a user of its own, which may not enter the directories of other tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g := serve(t, "--python", systemPython, "--config", manifest(t,
		testModel("echo", nil, uncached)+function("echo", "echo", "slo: 60s"),
		strictModel(t, dir, "code", callsProgram, "calls: [echo]", uncached)+function("code", "code", "slo: 60s")))
	m := g.awaitModel("code", "a replica, or the reason why there is none", func(m api.ModelStatus) bool {
		return m.ReadyReplicas() == 1 || lastExits(m) != ""
	})
	if m.ReadyReplicas() == 0 {
		if why := lastExits(m); !strings.Contains(why, "run.isolation is strict, and this machine does not give every layer: ") {
			t.Errorf("the replica does not start: %s", why)
		} else {
			t.Logf("not tried: %s", why)
		}
		return
	}
	for _, c := range []struct{ code, want string }{
		{`xebec.call("echo", b"hello")`, "b'hello'"},
		{`[bytes(x) for x in xebec.call.many("echo", [b"a", b"b"])]`, "[b'a', b'b']"},
		{`xebec.call("code", b"x")`, `["code", "forbidden", "call of 'code': code calls \"code\", which its manifest does not declare: add it to calls (forbidden)"]`},
		{`__import__("socket").create_connection(("` + strings.Replace(g.functions, ":", `", `, 1) + `)`, ""},
	} {
		switch a := g.raw("code", c.code); {
		case c.want == "": // the network that strict takes away
			if a.predicted() {
				t.Errorf("%s: answered by %v: expected no network", c.code, a)
			}
		case !a.predicted() || a.text() != c.want:
			t.Errorf("%s: %v\n got %s\nwant %s", c.code, a, a.text(), c.want)
		}
	}
}
