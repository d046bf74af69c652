package apptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// awaitShadows waits until the comparisons of a function's shadows have these counts.
func awaitShadows(g *gateway, function string, same, different, failed uint64) {
	g.t.Helper()
	g.await(fmt.Sprintf("%d shadow answers that are the same, %d that differ, %d that failed", same, different, failed), func(ctx context.Context) (bool, string) {
		f, err := g.described(ctx, function)
		if err != nil || f.Shadow == nil {
			return false, fmt.Sprint(err)
		}
		return f.Shadow.Same == same && f.Shadow.Different == different && f.Shadow.Failed == failed, fmt.Sprintf("%+v", f.Shadow)
	})
}

// Shadow models get the declared part of the queries. Their answers are compared with the given answer and reach no
// caller. A shadow that is slow, has failed or is gone does not affect callers.
func TestShadows(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("m", "echo"), number("same", "echo", stoppable), number("other", "noop"), number("never", "noop"),
		strings.Replace(number("broken", "echo"), programs.worker, "/bin/false", 1),
		function("f", "m", "slo: 60s", "shadow: {same: 1, other: 1, broken: 1}"), function("rare", "m", "slo: 60s", "shadow: {never: 0.000001}")))
	wants := func(input int) {
		t.Helper()
		if a := g.ask("f", input, ""); !a.predicted() || a.number() != input || fmt.Sprint(a.Models) != "[m@1]" || a.Confidence != 1 || len(a.Late) > 0 {
			t.Fatalf("beside shadows %d is answered by %v", input, a)
		}
	}
	const queries = 10
	for input := 1; input <= queries; input++ {
		wants(input)
	}
	awaitShadows(g, "f", queries, queries, 0)
	m := g.metrics().samples
	if m[`xebec_shadow_predictions_total{function="f",outcome="same"}`] != queries || m[`xebec_shadow_predictions_total{function="f",outcome="different"}`] != queries {
		t.Errorf("the metrics do not have %d of each", queries)
	}
	g.xebec("describe", "function", "f").wants(t, "describe", 0, "10 agreed with the answer, 10 did not, 0 failed", "")
	g.ask("rare", 3, "")
	if n := g.metrics().of("model_queries_total", "never", "ok"); n > 0 {
		t.Errorf("a shadow for one query in a million got the first query")
	}

	// A slow shadow: its queries wait, callers do not.
	release := stall(g, "same")
	for input := 101; input <= 100+queries; input++ {
		wants(input)
	}
	release()
	awaitShadows(g, "f", 2*queries, 2*queries, 0)

	// A killed shadow, which is restarted.
	stall(g, "same")
	wants(200)
	kill(t, g.model("same").Replicas[0].PID)
	g.awaitModel("same", "a new replica", func(m api.ModelStatus) bool { return restarts(m) == 1 && m.ReadyReplicas() == 1 })
	for input := 201; input <= 200+queries; input++ {
		wants(input)
	}
	g.await("the shadow to be compared again", func(ctx context.Context) (bool, string) {
		f, err := g.described(ctx, "f")
		return err == nil && f.Shadow.Same >= 3*queries && f.Shadow.Different >= 3*queries, fmt.Sprintf("%+v %v", f.Shadow, err)
	})
	g.apply(function("f", "m", "slo: 60s", "shadow: {other: 1}"))
	g.must("delete", "model", "same")
	wants(300)
	g.xebec("delete", "model", "other").wants(t, "delete a shadow in use", 1, "", "function f needs model other")
}

// A shadow is compared with the ensemble's answer, not with a member's, and the policy learns nothing from it.
func TestShadowsOfEnsembles(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("a", "noop"), number("b", "echo"), number("c", "echo"), number("s", "echo"),
		function("f", "a, b, c", "slo: 60s", "policy: exp4", "shadow: {s: 1}")))
	g.teach("f", 1, 10, "", zero)
	p := g.learned("f")
	if len(p.Candidates) != 3 || p.Feedback.Counted != 10 || total(p.Candidates) > 30 {
		t.Errorf("describe says %+v", p)
	}
	f, err := g.described(bounded(t), "f")
	if err != nil || f.Shadow == nil || len(f.Shadow.Models) != 1 || f.Shadow.Models[0].Model != "s@1" || f.Shadow.Models[0].Part != 1 {
		t.Fatalf("describe says of the shadow %+v (%v)", f.Shadow, err)
	}
	g.await("all comparisons", func(ctx context.Context) (bool, string) {
		f, err := g.described(ctx, "f")
		return err == nil && f.Shadow.Same+f.Shadow.Different == 10 && f.Shadow.Same > 0, fmt.Sprintf("%+v %v", f.Shadow, err)
	})
}
