package apptest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// spyProgram is a model that answers a query with what it has seen of the gateway: the query is Python.
const spyProgram = `
import contextlib, io, os, socket, urllib.request
import xebec

def attempt(code):
    try:
        return str(eval(code)).encode()
    except Exception as e:
        return ("denied: %s" % e).encode()

xebec.serve(lambda batch: [attempt(query.decode()) for query in batch])
`

// A model cannot read the gateway's token, its store or its environment, or reach its admin port, whether its process
// was started or forked, and describe names its layers. Queries are answered meanwhile. A model without isolation can do
// all of it, so that the attempts are known to be right.
func TestModelsThatSpy(t *testing.T) {
	t.Parallel()
	models := newDir(t)
	var all strings.Builder
	for name, extra := range map[string][]string{
		"started": {"preload: []"}, "forked": {"preload: [json]"},
	} {
		all.WriteString(pythonModel(t, models, name, spyProgram, append(extra, uncached)...) + function(name, name, "slo: 60s"))
	}
	all.WriteString(plain(pythonModel(t, models, "open", spyProgram, uncached)) + function("open", "open", "slo: 60s"))
	dir := newDir(t)
	data, token := filepath.Join(dir, "data"), filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("anyone:0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := serveIn(t, dir, "--python", python(t), "--data-dir", data, "--admin-token-file", token, "--config", manifest(t, all.String()))
	_, port, _ := strings.Cut(g.admin, ":")
	attempts := map[string]string{
		fmt.Sprintf("len(open(%q).read()) or 1/0", token):                                 "40",
		fmt.Sprintf("len(open(%q, 'rb').read(4))", filepath.Join(data, "state.db")):       "4",
		fmt.Sprintf("len(open('/proc/%d/cmdline', 'rb').read(4))", g.cmd.Process.Pid):     "4",
		fmt.Sprintf("os.kill(%d, 0)", g.cmd.Process.Pid):                                  "None",
		fmt.Sprintf("socket.create_connection(('127.0.0.1', %s)).getpeername()[0]", port): "127.0.0.1",
		"os.path.basename(open('beside', 'w').name)":                                      "beside",
	}
	for query, seen := range attempts {
		for _, name := range []string{"started", "forked"} {
			if a := g.raw(name, query); !a.predicted() || !strings.HasPrefix(a.text(), "denied: ") {
				t.Errorf("the model %s: %s: %v: expected it to be denied", name, query, a)
			}
		}
		if a := g.raw("open", query); !a.predicted() || a.text() != seen {
			t.Errorf("the model without isolation: %s: %v: expected %s", query, a, seen)
		}
	}
	if a := g.raw("started", "open('/tmp/x', 'w').write('xebec')"); a.text() != "5" {
		t.Errorf("the model's own /tmp: %v", a)
	}
}

// The host's network is refused while the admin port asks for no token, and a model that fails for want of one is told
// which field to set.
func TestNetworkOfAModel(t *testing.T) {
	t.Parallel()
	const wants = "import socket\nsocket.create_connection((\"192.0.2.1\", 80), 1)\n"
	dir := newDir(t)
	m := pythonModel(t, dir, "connects", wants)
	g := serve(t, "--python", python(t), "--config", manifest(t, m))
	g.awaitModel("connects", "the model to fail", func(m api.ModelStatus) bool { return m.State == api.ModelFailed })
	g.describes("connects", "Network is unreachable", "run.network: host")
	host := strings.Replace(strings.Replace(m, "name: connects", "name: host", 1), "run: {", "run: {network: host, ", 1)
	g.xebec("apply", "-f", manifest(t, host)).wants(t, "apply a model with the host's network", 1, "", "--admin-token-file")
}

// A model whose files every user may read answers, also where the gateway's data directory lies in a directory that others may not
// enter, as root's home is. Where nothing is in the way, a root gateway gives it a user of its own.
func TestModelThatAllMayRead(t *testing.T) {
	t.Parallel()
	public, err := os.MkdirTemp("/tmp", "xebec-public-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(public) })
	program, err := os.ReadFile(programs.worker)
	worker := filepath.Join(public, "worker")
	if err := errors.Join(err, os.Chmod(public, 0o755), os.WriteFile(worker, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	// Without `dir` it runs where its manifest lies, of which there is no snapshot in the data directory.
	writeFile(t, public, "m.yaml", strings.Replace(testModel("m", nil, uncached), programs.worker, worker, 1)+function("f", "m", "slo: 60s"))
	// It must not lie below a directory that the replica has of its own.
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	private, err := os.MkdirTemp(home, ".xebec-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(private) })
	for data, says := range map[string]string{
		filepath.Join(private, "data"): "its socket lies in " + private + ", which may not be entered by other users",
		filepath.Join(public, "data"):  "",
	} {
		g := serve(t, "--data-dir", data, "--config", filepath.Join(public, "m.yaml"))
		g.awaitServing("m@1")
		if a := g.raw("f", "hello"); !a.predicted() {
			t.Errorf("with the data in %s it is answered by %v", data, a)
		}
		r := g.version("m@1").Replicas[0]
		if own := strings.Contains(strings.Join(r.Isolation, "\n"), "own uid"); os.Geteuid() == 0 && (own != (says == "") || !strings.Contains(strings.Join(r.NotIsolated, "\n"), says)) {
			t.Errorf("with the data in %s its layers are %v, without %v: expected %q", data, r.Isolation, r.NotIsolated, says)
		}
		g.stop()
	}
}
