package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// versionStatus reads one version of a model from the admin API.
func (g *gateway) versionStatus(ctx context.Context, ref string) (api.ModelStatus, error) {
	id, err := api.ParseModelRef(ref)
	if err != nil {
		return api.ModelStatus{}, err
	}
	status, body := g.fetch(ctx, "http://"+g.admin+"/v1/models/"+id.Name)
	var list api.ModelList
	if status != 200 {
		return api.ModelStatus{}, fmt.Errorf("%d %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return api.ModelStatus{}, err
	}
	for _, m := range list.Models {
		if m.Spec.ID() == id {
			return m, nil
		}
	}
	return api.ModelStatus{}, fmt.Errorf("%s is not among the %d versions", ref, len(list.Models))
}

// version returns the present status of a version, "name@version".
func (g *gateway) version(ref string) api.ModelStatus {
	g.t.Helper()
	m, err := g.versionStatus(bounded(g.t), ref)
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

// awaitVersion waits until a version meets a condition.
func (g *gateway) awaitVersion(ref, what string, condition func(api.ModelStatus) bool) api.ModelStatus {
	g.t.Helper()
	var last api.ModelStatus
	g.await(fmt.Sprintf("%s: %s", ref, what), func(ctx context.Context) (bool, string) {
		m, err := g.versionStatus(ctx, ref)
		if err != nil {
			return false, err.Error()
		}
		last = m
		return condition(m), fmt.Sprintf("%+v", m)
	})
	return last
}

// awaitPhase waits until a version is in a phase.
func (g *gateway) awaitPhase(ref string, phase api.VersionPhase) api.ModelStatus {
	g.t.Helper()
	return g.awaitVersion(ref, "phase "+string(phase), func(m api.ModelStatus) bool { return m.Version.Phase == phase })
}

// awaitServing waits until a model's name resolves to this version, "name@version".
func (g *gateway) awaitServing(ref string) api.ModelStatus {
	g.t.Helper()
	return g.awaitVersion(ref, "it serves", func(m api.ModelStatus) bool { return m.Serving && m.Version.Phase == api.PhaseAvailable })
}

// awaitNoProcess waits until a version has no process. A zombie does not count.
func (g *gateway) awaitNoProcess(ref string) {
	g.t.Helper()
	g.await("no process of "+ref, func(context.Context) (bool, string) {
		left := g.workersOf(ref)
		return len(left) == 0, fmt.Sprint(left)
	})
}

// workersOf returns the processes of a version, by the environment that the gateway gives them.
func (g *gateway) workersOf(ref string) (found []process) {
	name, version, _ := strings.Cut(ref, "@")
	for _, p := range processesOf(g.dir) {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		text := "\x00" + string(environ)
		if err == nil && strings.Contains(text, "\x00XEBEC_MODEL="+name+"\x00") && strings.Contains(text, "\x00XEBEC_VERSION="+version+"\x00") {
			found = append(found, p)
		}
	}
	return found
}

// traffic is a manifest of a model's traffic rules.
func traffic(model string, lines ...string) string {
	return fmt.Sprintf("\n---\nkind: Traffic\nname: %s\n%s\n", model, strings.Join(lines, "\n"))
}

// trafficOf returns the present traffic of a model.
func (g *gateway) trafficOf(ctx context.Context, model string) (t api.TrafficStatus, err error) {
	status, body := g.fetch(ctx, "http://"+g.admin+"/v1/traffic/"+model)
	if status != 200 {
		return t, fmt.Errorf("%d %s", status, body)
	}
	list, err := decode[api.TrafficList](body)
	if err == nil && len(list.Traffic) != 1 {
		err = fmt.Errorf("%d traffic rules of %s", len(list.Traffic), model)
	}
	if err != nil {
		return t, err
	}
	return list.Traffic[0], nil
}

// awaitTraffic waits until a model's traffic meets a condition.
func (g *gateway) awaitTraffic(model, what string, condition func(api.TrafficStatus) bool) api.TrafficStatus {
	g.t.Helper()
	var last api.TrafficStatus
	g.await(fmt.Sprintf("traffic of %s: %s", model, what), func(ctx context.Context) (bool, string) {
		t, err := g.trafficOf(ctx, model)
		if err != nil {
			return false, err.Error()
		}
		last = t
		return condition(t), toJSON(g.t, t)
	})
	return last
}

// uncached are lines of a model whose answers are not cached.
const uncached = "cache: off"

// crowd is several clients, each a load of its own, so that the answers of one client are in order.
type crowd []*load

func (g *gateway) startCrowd(function string, clients int, headers ...string) (all crowd) {
	for range clients {
		all = append(all, g.startLoad(function, 1, maxLoad, headers...))
	}
	return all
}

// served waits until every client has n more answers.
func (c crowd) served(n int64) {
	c[0].g.t.Helper()
	for _, l := range c {
		l.served(n)
	}
}

// judge ends the clients and checks that each client was answered by all these versions in this order, and by no other.
func (c crowd) judge(t *testing.T, versions ...string) {
	t.Helper()
	n := 0
	for _, l := range c {
		all := l.stop()
		n += len(all)
		judge(t, all, "ok")
		var seen []string
		for _, o := range all {
			if models := o.answer.Models; len(models) != 1 {
				t.Errorf("%q is answered by %v: expected one version", o.sent, models)
			} else if len(seen) == 0 || seen[len(seen)-1] != models[0] {
				seen = append(seen, models[0])
			}
		}
		if !slices.Equal(seen, versions) {
			t.Errorf("a client was answered by the versions %v: expected %v", seen, versions)
		}
	}
	t.Logf("%d requests", n)
}

// Under load a new version takes over when it is ready, a rollback restores the old one and unloads the new one, and a
// version newer than the bad one ends the rollback. No query fails, and each client sees the versions in this order.
func TestRollOutAndBackUnderLoad(t *testing.T) {
	t.Parallel()
	m := testModel("m", nil, uncached)
	f := function("f", "m", "slo: 60s")
	g := serve(t, "--config", manifest(t, m, f))
	clients := g.startCrowd("f", 6)
	clients.served(50)
	g.apply(version(m, "2"))
	g.awaitServing("m@2")
	clients.served(50)
	if one := g.version("m@1"); one.Version.Phase != api.PhaseAvailable || !one.Version.Aspired || one.Serving || one.ServingVersion != "2" {
		t.Errorf("beside the new version the old one is %+v: expected that it stays available", one.Version)
	}
	if text := g.must("describe", "model", "m"); strings.Count(text, "available since") != 2 {
		t.Errorf("describe does not show two versions that are available:\n%s", text)
	}

	if out := g.must("rollback", "m", "--reason", "it was a test", "--wait"); !strings.Contains(out, "m") {
		t.Errorf("rollback says %q", out)
	}
	g.awaitServing("m@1")
	two := g.awaitPhase("m@2", api.PhaseDeclared)
	g.awaitNoProcess("m@2")
	if two.Version.Aspired || len(g.version("m@2").Replicas) > 0 {
		t.Errorf("the bad version is %+v with replicas %+v", two.Version, two.Replicas)
	}
	clients.served(50)
	rule := g.awaitTraffic("m", "the rollback to be in force", func(t api.TrafficStatus) bool { return t.Spec.Rollback != nil })
	if b := rule.Spec.Rollback; b.From != "2" || b.To != "1" || b.Reason != "it was a test" {
		t.Errorf("the rollback is %+v", b)
	}
	// The same manifest is applied again, which does not bring the bad version back.
	if out := g.must("apply", "-f", manifest(t, m, version(m, "2"), f)); strings.Contains(out, "created") || strings.Contains(out, "updated") {
		t.Errorf("applying the same manifest again prints\n%s", out)
	}
	if phase := g.version("m@2").Version.Phase; phase != api.PhaseDeclared {
		t.Errorf("after the same manifest was applied again the bad version is %s", phase)
	}

	g.apply(version(m, "3"))
	g.awaitServing("m@3")
	clients.served(50)
	clients.judge(t, "m@1", "m@2", "m@1", "m@3")
	if phase := g.version("m@2").Version.Phase; phase != api.PhaseDeclared {
		t.Errorf("while a newer version serves the bad one is %s: expected that it is not loaded", phase)
	}
	history := g.must("history", "m")
	for _, says := range []string{"rolled back", "it was a test", "m@3", "created"} {
		if !strings.Contains(history, says) {
			t.Errorf("the history does not say %q:\n%s", says, history)
		}
	}
	g.xebec("rollback", "m", "--to", "9").wants(t, "rollback to an unknown version", 1, "", `"9"`)
}

// A version whose process ends at once, and one that never becomes ready, leave the old version serving. The reason is
// shown, they can be deleted, and a later working version takes over.
func TestVersionThatNeverComesUp(t *testing.T) {
	t.Parallel()
	m := testModel("m", nil, uncached)
	ends := strings.Replace(version(m, "2"), programs.worker, "/bin/false", 1)
	hangs := strings.Replace(version(m, "3"), "command: [", `command: [sh, -c, "exec sleep 86400", `, 1)
	g := serve(t, "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	clients := g.startCrowd("f", 4)

	g.xebec("apply", "-f", manifest(t, ends), "--wait").wants(t, "apply a version that ends", 1, "m@2 created", "m@2 has failed: exited with code 1")
	two := g.awaitVersion("m@2", "the version to fail", func(m api.ModelStatus) bool { return m.State == api.ModelFailed })
	if two.Version.Phase != api.PhaseLoading || two.Serving || !strings.Contains(lastExits(two), "exited with code 1") {
		t.Errorf("a version whose process ends is %s, %+v, %q", two.Version.Phase, two.Serving, lastExits(two))
	}
	g.xebec("describe", "model", "m").wants(t, "describe", 0, "exited with code 1", "")
	g.xebec("promote", "m@2", "--wait").wants(t, "promote a version that ends", 1, "traffic m@2", "m@2 has failed: exited with code 1")
	clients.served(20)
	g.must("delete", "model", "m@2")

	g.must("apply", "-f", manifest(t, hangs))
	three := g.awaitVersion("m@3", "its process to start", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 && m.Replicas[0].PID > 0 })
	if three.Version.Phase != api.PhaseLoading || three.State != api.ModelStarting || three.Serving {
		t.Errorf("a version that hangs is %s, %s", three.Version.Phase, three.State)
	}
	g.xebec("promote", "m@3", "--wait", "--timeout", "1s").wants(t, "promote a version that hangs", 1, "traffic m@3", "m@3 does not serve after 1s")
	clients.served(20)
	g.must("delete", "model", "m@3")
	g.awaitNoProcess("m@3")

	g.apply(version(m, "4"))
	g.awaitServing("m@4")
	clients.served(20)
	clients.judge(t, "m@1", "m@4")
}

// Under transition: resources the old version is unloaded first. Each process takes a lock, which shows that there are
// never two at a time. Queries wait meanwhile, for at most the function's cold start, and are answered.
func TestTransitionResources(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(newDir(t), "lock")
	alone := fmt.Sprintf(`command: [sh, -c, 'exec 9>%s; flock -n 9 || exit 9; exec "$@"', sh, `, lock)
	m := plain(strings.Replace(testModel("m", nil, uncached), "command: [", alone, 1))
	g := serve(t, "--config", manifest(t, m, traffic("m", "transition: resources"), function("f", "m", "slo: 1s", "cold_start: 60s")))
	clients := g.startCrowd("f", 4)
	clients.served(50)
	for _, v := range []string{"2", "3"} {
		g.must("apply", "-f", manifest(t, version(m, v)))
		g.awaitServing("m@" + v)
		clients.served(50)
	}
	g.must("rollback", "m", "--wait")
	g.awaitServing("m@2")
	clients.served(50)
	clients.judge(t, "m@1", "m@2", "m@3", "m@2")
	for _, v := range []string{"1", "3"} {
		if phase := g.version("m@" + v).Version.Phase; phase != api.PhaseDeclared {
			t.Errorf("version %s is %s: expected that it is not loaded", v, phase)
		}
	}
	if log := g.logText(); strings.Contains(log, "exited with code 9") {
		t.Errorf("two versions ran at the same time:\n%s", log)
	}
	if two := g.version("m@2"); restarts(two) > 0 || two.ReadyReplicas() != 1 {
		t.Errorf("the version that serves has %d restarts", restarts(two))
	}
}

// Under transition: resources, queries that wait for a version that never becomes ready do not prevent the old one from
// being loaded again.
func TestTransitionResourcesBack(t *testing.T) {
	t.Parallel()
	m := testModel("m", nil, uncached)
	g := serve(t, "--config", manifest(t, m, traffic("m", "transition: resources"), function("f", "m", "slo: 1s", "cold_start: 10m")))
	const waiting = 5
	g.must("apply", "-f", manifest(t, strings.Replace(version(m, "2"), "command: [", `command: [sh, -c, "exec sleep 86400", `, 1)))
	g.awaitPhase("m@1", api.PhaseDeclared)
	g.awaitPhase("m@2", api.PhaseLoading)
	ctx, leave := context.WithCancel(bounded(t))
	var asking sync.WaitGroup
	for range waiting {
		asking.Go(func() {
			if a, err := g.post(ctx, "/f/predict", "text/plain", []byte("hello")); err == nil && a.Code != api.NoReplica.String() && !(a.predicted() && a.Models[0] == "m@1") {
				t.Errorf("a query that waited is answered by %v", a)
			}
		})
	}
	defer asking.Wait()
	defer leave()
	g.awaitVersion("m@2", "the queries to wait for it", func(m api.ModelStatus) bool { return m.QueueDepth == waiting })
	g.must("rollback", "m")
	g.awaitServing("m@1")
	g.await("version 1 to answer", versionServes(g, "f", "m@1"))
	g.awaitPhase("m@2", api.PhaseDeclared)
}

// Under transition: resources, a version whose process ends at once gives its room to the old one, and is tried again when
// the rules change.
func TestTransitionResourcesGivesWay(t *testing.T) {
	t.Parallel()
	m := plain(testModel("m", nil, uncached))
	rules := func(line string) string { return traffic("m", "transition: resources", line) }
	g := serve(t, "--config", manifest(t, m, rules("labels: {first: \"1\"}"), function("f", "m", "slo: 60s", "cold_start: 60s")))
	clients := g.startCrowd("f", 4)
	clients.served(20)
	mended := filepath.Join(newDir(t), "mended")
	two := strings.Replace(version(m, "2"), "command: [", fmt.Sprintf(`command: [sh, -c, 'test -e %s || exit 7; exec "$@"', sh, `, mended), 1)
	g.xebec("apply", "-f", manifest(t, two), "--wait").wants(t, "apply a version that does not start", 1, "m@2 created", "m@2 is not loaded: it does not start (exited with code 7)")
	gone := g.awaitVersion("m@2", "it to give way", func(m api.ModelStatus) bool {
		return m.Version.Phase == api.PhaseDeclared && strings.Contains(m.Version.Reason, "exited with code 7")
	})
	if gone.Serving || gone.Version.Aspired {
		t.Errorf("a version that gave its room to another one is %+v", gone.Version)
	}
	g.awaitServing("m@1")
	clients.served(20)
	g.xebec("describe", "model", "m@2").wants(t, "describe", 0, "it does not start (exited with code 7), and another version has its room", "")

	writeFile(t, filepath.Dir(mended), filepath.Base(mended), "")
	g.must("apply", "-f", manifest(t, rules("labels: {second: \"2\"}")))
	g.awaitServing("m@2")
	clients.served(20)
	clients.judge(t, "m@1", "m@2")
}

// The old version answers all queries that it has accepted before its process ends, however slow it is, while the new one
// answers new queries.
func TestDrainingVersionAnswers(t *testing.T) {
	t.Parallel()
	m := testModel("m", nil, uncached, "timeout: 10m", "batching: {policy: none}")
	g := serve(t, "--drain-timeout", "60s", "--config", manifest(t, m, traffic("m", "versions: {latest: 1}"), function("f", "m", "slo: 60s")))
	release := stall(g, "m")
	const slow = 8
	answers := make(chan answer, slow)
	ctx := bounded(t)
	var asking sync.WaitGroup
	for i := range slow {
		asking.Go(func() {
			a, err := g.post(ctx, "/f/predict", "text/plain", fmt.Appendf(nil, "spin:%dms", 200+i))
			if err != nil {
				t.Errorf("a slow query: %v", err)
			}
			answers <- a
		})
	}
	g.await("the slow queries to be with version 1", func(ctx context.Context) (bool, string) {
		one, err := g.versionStatus(ctx, "m@1")
		return err == nil && one.QueueDepth >= slow-2, fmt.Sprint(one.QueueDepth, err) // two have left the queue for the worker
	})
	g.apply(version(m, "2"))
	g.awaitServing("m@2")
	one := g.awaitPhase("m@1", api.PhaseDraining)
	for range 20 {
		if a := g.raw("f", "quick"); !a.predicted() || a.Models[0] != "m@2" {
			t.Errorf("while the old version drains a query is answered by %v", a)
		}
	}
	if len(answers) > 0 || len(g.workersOf("m@1")) == 0 || one.ReadyReplicas() != 1 {
		t.Errorf("while it drains the old version has answered %d queries and has %d processes: expected no answer yet, and its process", len(answers), len(g.workersOf("m@1")))
	}
	release()
	for range slow {
		if a := <-answers; !a.predicted() || a.Models[0] != "m@1" || !strings.HasPrefix(a.text(), "spin:") {
			t.Errorf("a slow query is answered by %v: expected version 1", a)
		}
	}
	asking.Wait()
	g.awaitPhase("m@1", api.PhaseDeclared)
	g.awaitNoProcess("m@1")
}

// A new version takes over only when all its replicas are ready. A version that may sleep is woken for its validation,
// and sleeps again.
func TestVersionTakesOverWithAllReplicas(t *testing.T) {
	t.Parallel()
	// One replica of version 2 passes the gate and starts; the other waits for the gate to open.
	dir := newDir(t)
	first, gate := filepath.Join(dir, "first"), filepath.Join(dir, "gate")
	second := fmt.Sprintf(`command: [sh, -c, 'mkdir %s 2>/dev/null || while [ ! -e %s ]; do sleep 0.05; done; exec "$@"', sh, `, first, gate)
	m := testModel("m", nil, uncached, "replicas: {min: 2}")
	g := serve(t, "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	clients := g.startCrowd("f", 2)
	g.must("apply", "-f", manifest(t, plain(strings.Replace(version(m, "2"), "command: [", second, 1))))
	g.awaitVersion("m@2", "one ready replica", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 1 })
	clients.served(50)
	two := g.version("m@2")
	if two.Version.Phase != api.PhaseLoading || two.Serving || two.ReadyReplicas() != 1 {
		t.Errorf("with one replica of two version 2 is %s, serving %v", two.Version.Phase, two.Serving)
	}
	writeFile(t, dir, "gate", "")
	if two = g.awaitServing("m@2"); two.ReadyReplicas() != 2 {
		t.Errorf("version 2 took over with %d replicas", two.ReadyReplicas())
	}
	clients.served(20)
	clients.judge(t, "m@1", "m@2")

	// The path of the queries is relative to the manifest's directory.
	writeFile(t, dir, "queries.jsonl", `{"input":3,"label":3}`+"\n")
	writeFile(t, dir, "sleeper.yaml", number("s", "echo", "replicas: {min: 0}", "validate: {queries: queries.jsonl, min_accuracy: 1}"))
	g.must("apply", "-f", filepath.Join(dir, "sleeper.yaml"))
	s := g.awaitVersion("s@1", "the version to be validated and asleep", func(m api.ModelStatus) bool {
		return m.Version.Phase == api.PhaseAvailable && len(m.Replicas) == 0
	})
	if v := s.Version.Validation; v == nil || !v.Passed || v.Queries != 1 || v.Matched != 1 || v.Extremes == 0 || !s.Serving || s.State != api.ModelIdle {
		t.Errorf("the version that may sleep is %s, %s, validation %+v", s.Version.Phase, s.State, v)
	}
	g.awaitNoProcess("s@1")
}
