package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// burst sends 64 queries at once. Every second one has the same input, so that some wait for the evaluation of others.
func (g *gateway) burst(function string) []answer {
	g.t.Helper()
	ctx := bounded(g.t)
	all := make([]answer, 64)
	var sent sync.WaitGroup
	for i := range all {
		sent.Go(func() {
			var err error
			if all[i], err = g.post(ctx, "/"+function+"/predict", "text/plain", fmt.Append(nil, "input ", i*(i%2))); err != nil {
				g.t.Errorf("query %d: %v", i, err)
			}
		})
	}
	sent.Wait()
	return all
}

// A burst that finds no replica is answered by the replica if it starts in time. If it does not, clients are told that
// there was none and when to come again: 503, not 504, because the model is not what was slow.
func TestColdBurst(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	gate, lateGate := filepath.Join(dir, "gate"), filepath.Join(dir, "late")
	g := serve(t, "--config", manifest(t,
		gated(testModel("m", nil, sleepy), gate), function("slow", "m", "slo: 100ms", "cold_start: 1s"), function("f", "m", "slo: 60s"),
		// One query a batch, each of which takes a while: the replica is there, and most of the burst is too late for it.
		gated(testModel("late", []string{"-spin", "200ms"}, sleepy, "batching: {policy: fixed, max: 1}"), lateGate), function("late", "late", "slo: 100ms", "cold_start: 5s")))
	for _, a := range g.burst("slow") {
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); a.Status != 503 || a.Code != api.NoReplica.String() || err != nil || after < 1 {
			t.Fatalf("a query for which the start was too slow is answered by %v with Retry-After %d (%v): expected 503 no_replica", a, after, err)
		}
	}
	open(t, gate)
	g.awaitReplicas("m", 1)
	g.awaitAsleep("m")
	for i, a := range g.burst("f") {
		if !a.predicted() || a.text() != fmt.Sprint("input ", i*(i%2)) {
			t.Fatalf("query %d of a burst that wakes its model is answered by %v", i, a)
		}
	}
	answered := make(chan []answer)
	go func() { answered <- g.burst("late") }()
	g.await("the burst to be there", func(ctx context.Context) (bool, string) {
		_, body := g.fetch(ctx, "http://"+g.admin+"/v1/describe/gateway")
		var s api.GatewayStatus
		err := json.Unmarshal([]byte(body), &s)
		return err == nil && s.Inflight == 64, body
	})
	open(t, lateGate)
	for _, a := range <-answered {
		if !a.predicted() && (a.Status != 503 || a.Code == api.DeadlineExceeded.String()) {
			t.Errorf("a query that came before the first replica is answered by %v: expected 503", a)
		}
	}
}

// The gateway is ready although a model fails; /readyz?verbose shows the failure. It is unready if it fails a function
// that it was told to require.
func TestReadinessAndBrokenModels(t *testing.T) {
	t.Parallel()
	broken := strings.Replace(testModel("broken", nil), programs.worker, "/bin/false", 1)
	files := manifest(t, testModel("m", nil), testModel("asleep", nil, sleepy), broken, function("f", "m"), function("naps", "asleep"), function("b", "broken"))
	const required = "required functions cannot answer: [b]"
	for _, c := range []struct {
		name, requires, why string
	}{{"none", "", ""}, {"others", "f,naps", ""}, {"the broken one", "f,b", required}, {"all", "all", required}, {"unknown", "x", "required functions cannot answer: [x]"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", files}
			if c.requires != "" {
				args = append(args, "--ready-requires", c.requires)
			}
			g := launch(t, newDir(t), args...)
			g.await("the gateway's addresses", g.readAddresses)
			g.awaitModel("broken", "it has failed", func(m api.ModelStatus) bool { return m.State == api.ModelFailed })
			g.awaitReplicas("m", 1)
			for _, port := range []string{g.functions, g.admin} {
				status, body := g.fetch(bounded(t), "http://"+port+"/readyz?verbose")
				var r api.Readiness
				if err := json.Unmarshal([]byte(body), &r); err != nil {
					t.Fatalf("%v: %s", err, body)
				}
				if r.Ready != (c.why == "") || r.Reason != c.why || r.Ready != (status == 200) {
					t.Errorf("readyz says %d %s", status, body)
				}
				for _, kind := range []api.Kind{api.KindFunction, api.KindModel} {
					if !slices.ContainsFunc(r.Problems, func(p api.ReadinessProblem) bool {
						return p.Kind == kind && p.State == api.ModelFailed && p.Reason != ""
					}) {
						t.Errorf("no failed %s among the problems: %s", kind, body)
					}
				}
				if len(r.Problems) != 2 {
					t.Errorf("problems: %s", body)
				}
				if _, body = g.fetch(bounded(t), "http://"+port+"/readyz"); strings.Contains(body, "problems") {
					t.Errorf("without verbose: %s", body)
				}
			}
			g.apply(testModel("later", nil), function("later", "later"))
			if c.requires == "" {
				if status, body := g.fetch(bounded(t), "http://"+g.functions+"/readyz"); status != 200 {
					t.Errorf("a model that starts later makes the gateway unready: %d %s", status, body)
				}
			}
		})
	}
}
