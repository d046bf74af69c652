package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// often is the interval at which the tests' directories are scanned.
const often = "50ms"

// models is a directory that a gateway watches.
type models struct {
	*gateway
	dir   string
	looks int
}

// watch starts a gateway that watches a directory filled by put. The gateway finds new files a moment later.
func watch(t *testing.T, put func(dir string), more ...string) *models {
	t.Helper()
	dir := filepath.Join(newDir(t), "models")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put(dir)
	return &models{gateway: serve(t, append([]string{"--models", dir, "--models-interval", often}, more...)...), dir: dir}
}

// versionYAML is the xebec.yaml of a version that echoes bytes. Without a version in it the name of its directory
// applies.
func versionYAML(name, version string, extra ...string) string {
	text := testModel(name, nil, append(extra, uncached, "timeout: 10m")...) // a busy machine is no reason to lose a replica
	return strings.TrimPrefix(strings.Replace(text, `version: "1"`, fmt.Sprintf("version: %q", version), 1), "\n---\n")
}

// put makes a version's directory as deployments should: outside, and then renamed into place.
func put(t *testing.T, dir, name, version string, extra ...string) {
	t.Helper()
	half := filepath.Join(dir, name, "."+version)
	writeFile(t, half, "xebec.yaml", versionYAML(name, version, extra...))
	if err := os.Rename(half, filepath.Join(dir, name, version)); err != nil {
		t.Fatal(err)
	}
}

// looked waits until the directory has been scanned twice, after which a complete model in it is declared.
func (m *models) looked() {
	m.t.Helper()
	m.looks++
	name := fmt.Sprintf("look-%d", m.looks)
	put(m.t, m.dir, name, "1", "replicas: {min: 0}")
	m.await(name+" to be found", func(ctx context.Context) (bool, string) {
		_, err := m.versionStatus(ctx, name+"@1")
		return err == nil, fmt.Sprint(err)
	})
}

// versions returns the declared versions of m, in order.
func (m *models) versions(ctx context.Context) string {
	status, body := m.fetch(ctx, "http://"+m.admin+"/v1/models/m")
	list, err := decode[api.ModelList](body)
	if status != 200 || err != nil {
		return fmt.Sprint(status, body, err)
	}
	var all []string
	for _, of := range list.Models {
		all = append(all, of.Spec.Version+" "+string(of.Version.Phase))
	}
	return strings.Join(all, ", ")
}

// awaitVersions waits until m has these versions in these phases, for example "1 declared, 2 available".
func (m *models) awaitVersions(want string) {
	m.t.Helper()
	m.await("versions "+want, func(ctx context.Context) (bool, string) {
		got := m.versions(ctx)
		return got == want, got
	})
}

// problems returns what describe shows as problems with sources.
func (m *models) problems(ctx context.Context) []string {
	status, body := m.fetch(ctx, "http://"+m.admin+"/v1/describe/gateway")
	d, err := decode[api.GatewayStatus](body)
	if status != 200 || err != nil {
		return []string{fmt.Sprint(status, body, err)}
	}
	var all []string
	for _, s := range d.Sources {
		all = append(all, s.Problems...)
	}
	return all
}

// awaitProblem waits until one of the problems has all these texts, and describe shows it. Without texts it waits until
// there is no problem.
func (m *models) awaitProblem(says ...string) {
	m.t.Helper()
	is := func(text string) bool {
		return !slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(text, s) })
	}
	m.await(fmt.Sprintf("a problem that says %q", says), func(ctx context.Context) (bool, string) {
		all := m.problems(ctx)
		return slices.ContainsFunc(all, is) || len(says)+len(all) == 0, strings.Join(all, "\n")
	})
	if text := m.must("describe", "gateway"); len(says) > 0 && !is(text) {
		m.t.Errorf("describe gateway does not say %q:\n%s", says, text)
	}
}

// A directory of models is served as it changes: a new version once it is complete, and the old one again when the new
// one is broken or removed. Unreadable files change nothing.
func TestWatchedDirectory(t *testing.T) {
	t.Parallel()
	m := watch(t, func(dir string) { put(t, dir, "m", "1") })
	answers := func(version string) {
		t.Helper()
		m.awaitServing(version)
		m.await(version+" to answer", versionServes(m.gateway, "m", version))
	}
	answers("m@1")
	clients := m.startCrowd("m", 2, "Xebec-Slo-Ms", patient)
	clients.served(10)

	// Version 2 arrives file by file: first a part of run.sh, then half of xebec.yaml, beside the marker of an incomplete version.
	two := filepath.Join(m.dir, "m", "2")
	text := strings.Replace(versionYAML("m", "2"), "command: [", `command: [sh, run.sh, `, 1)
	script := "exec \"$@\"\n"
	writeFile(t, two, "run.sh", script[:4])
	m.looked()
	writeFile(t, two, ".incomplete", "")
	writeFile(t, two, "xebec.yaml", text[:len(text)/2])
	m.looked()
	writeFile(t, two, "xebec.yaml", text)
	m.looked()
	if got := m.versions(bounded(t)); got != "1 available" {
		t.Errorf("with half of version 2 in place the versions are %s", got)
	}
	writeFile(t, two, "run.sh", script)
	if err := os.Remove(filepath.Join(two, ".incomplete")); err != nil {
		t.Fatal(err)
	}
	answers("m@2")
	m.awaitVersions("1 declared, 2 available") // the newest is loaded by default
	if exits := m.version("m@2"); restarts(exits) > 0 {
		t.Errorf("version 2 was started before it was complete: %s", lastExits(exits))
	}
	clients.served(10)

	three := filepath.Join(m.dir, "m", "3")
	writeFile(t, three, "xebec.yaml", "kind: Model\nname: m\ncolour: red\n")
	m.awaitProblem(filepath.Join(three, "xebec.yaml"), "colour")
	clients.served(10)
	answers("m@2")
	writeFile(t, three, "xebec.yaml", versionYAML("m", "3"))
	answers("m@3")
	m.awaitProblem()
	clients.served(10)

	// Version 3 is removed: the newest is version 2 again.
	if err := os.RemoveAll(three); err != nil {
		t.Fatal(err)
	}
	answers("m@2")
	m.awaitVersions("1 declared, 2 available")
	m.awaitNoProcess("m@3")
	clients.served(10)

	// The whole directory vanishes, as a failed disk does, and comes back.
	away := m.dir + "-away"
	if err := os.Rename(m.dir, away); err != nil {
		t.Fatal(err)
	}
	m.awaitProblem(m.dir, "its previous contents are kept")
	clients.served(10)
	m.awaitVersions("1 declared, 2 available")
	if err := os.Rename(away, m.dir); err != nil {
		t.Fatal(err)
	}
	m.awaitProblem()
	put(t, m.dir, "m", "4")
	answers("m@4")
	clients.served(10)
	clients.judge(t, "m@1", "m@2", "m@3", "m@2", "m@4")
}

// The operator's traffic rules take precedence over the directory's default: all versions, some, or the newest n.
func TestTrafficOverDirectory(t *testing.T) {
	t.Parallel()
	m := watch(t, func(dir string) {
		for _, v := range []string{"1", "2", "3"} {
			put(t, dir, "m", v)
		}
	})
	m.awaitVersions("1 declared, 2 declared, 3 available")
	clients := m.startCrowd("m", 2, "Xebec-Slo-Ms", patient)
	clients.served(10)
	m.must("traffic", "m", "--all")
	m.awaitVersions("1 available, 2 available, 3 available")
	m.must("traffic", "m", "--latest", "2")
	m.awaitVersions("1 declared, 2 available, 3 available")
	clients.served(10)
	m.must("traffic", "m", "--specific", "1")
	m.awaitVersions("1 available, 2 declared, 3 declared")
	clients.served(10)
	m.must("delete", "traffic", "m")
	m.awaitVersions("1 declared, 2 declared, 3 available")
	clients.served(10)
	// An added version becomes the serving one, unless another one is pinned.
	m.must("traffic", "m", "--serving", "3")
	put(t, m.dir, "m", "4")
	m.awaitVersions("1 declared, 2 declared, 3 available, 4 available")
	clients.served(10)
	m.xebec("rollback", "m", "--to", "2", "--wait").wants(t, "rollback", 0, "m@2", "")
	clients.served(10)
	m.awaitVersions("1 declared, 2 available, 3 declared, 4 available") // version 4 never served
	m.xebec("delete", "model", "m@2").wants(t, "delete a version of a watched directory", 1, "", "comes from the watched directory "+m.dir)
	clients.judge(t, "m@3", "m@1", "m@3", "m@2")
}

// A model's name belongs to one source. A declaration of it by a second source is refused, with the reason.
func TestModelOfTwoSources(t *testing.T) {
	t.Parallel()
	m := watch(t, func(dir string) { put(t, dir, "m", "1") }, "--config", manifest(t, testModel("a", nil, uncached), function("fa", "a", "slo: 60s")))
	m.awaitServing("m@1")
	m.xebec("apply", "-f", manifest(t, version(testModel("m", nil), "2"))).wants(t, "apply a version of a watched model", 1, "", "the model comes from the watched directory "+m.dir)
	put(t, m.dir, "a", "2")
	m.awaitProblem("model a lies in "+m.dir, "declared by apply already")
	m.looked()
	if a := m.raw("fa", "hello"); !a.predicted() || a.Models[0] != "a@1" {
		t.Errorf("the applied model answers %v", a)
	}
	if status, _ := m.fetch(bounded(t), "http://"+m.admin+"/v1/models/a"); status != 200 || len(m.workersOf("a@2")) > 0 {
		t.Errorf("model a has status %d, and the directory's version has processes %v", status, m.workersOf("a@2"))
	}
	// When the applied model is deleted the directory's serves.
	m.must("delete", "function", "fa")
	m.must("delete", "model", "a")
	m.awaitServing("a@2")
	m.awaitProblem()
	m.await("a function of its name", versionServes(m.gateway, "a", "a@2"))
	m.xebec("delete", "function", "a").wants(t, "delete a function implied by a directory", 1, "", m.dir)

	// The function is deleted with its model. Other models stay.
	if err := os.RemoveAll(filepath.Join(m.dir, "a")); err != nil {
		t.Fatal(err)
	}
	m.await("the function to go with its model", func(ctx context.Context) (bool, string) {
		a, err := m.post(ctx, "/a/predict", "text/plain", []byte("hello"))
		status, body := m.fetch(ctx, "http://"+m.admin+"/v1/models/a")
		return err == nil && a.Status == 404 && status == 404, fmt.Sprint(a, status, body)
	})
	m.awaitNoProcess("a@2")
	if a := m.raw("m", "hello", "Xebec-Slo-Ms", patient); !a.predicted() || a.Models[0] != "m@1" {
		t.Errorf("the other model answers %v", a)
	}
}
