package apptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// withBoth counts the answers of an ensemble with both members, those with one member, and the defaults. It also counts
// the answers that name the expensive member as dropped.
func withBoth(t *testing.T, all []outcome) (both, one, defaults int) {
	t.Helper()
	for _, o := range all {
		switch a := o.answer; {
		case o.err != nil:
			t.Errorf("%q was not answered: %v", o.sent, o.err)
		case a.Default:
			defaults++
		case a.text() != o.sent:
			t.Errorf("%q was answered by %v", o.sent, a)
		case len(a.Models) == 2:
			both++
		case len(a.Models) == 1:
			one++
			if a.Models[0] != "cheap@1" && !slices.Contains(a.Late, "cheap@1") && !slices.Contains(a.Dropped, "cheap@1") {
				t.Errorf("%q was answered by %v, which does not say why the cheap member is missing", o.sent, a)
			}
		}
	}
	return both, one, defaults
}

// An ensemble of a cheap and an expensive model gets ten times the load that the expensive one can serve. Quality
// degrades, not availability: most answers are given without the expensive member and name it as dropped, few are the
// default, and the metric counts the drops. After the overload both members take part again.
func TestEnsembleDegradesGracefully(t *testing.T) {
	t.Parallel()
	const before, enough = 60, 1200
	g := serve(t, "--config", slowModel(t), "--config", manifest(t, testModel("cheap", nil), function("f", "slow, cheap", "slo: 1s", "policy: exp4", theDefault)),
		"--python", python(t))
	g.awaitReplicas("slow", 1)
	g.awaitReplicas("cheap", 1)
	// Below capacity both members take part. The scheduler trusts a profile after 16 batches.
	l := g.startLoad("f", 1, before)
	l.wg.Wait()
	if both, one, defaults := withBoth(t, l.stop()); both < before*2/3 {
		t.Errorf("without overload %d answers have both members, %d of one, and %d the default: expected nearly all of both", both, one, defaults)
	}

	f := g.startFlood("f")
	f.served(enough)
	all := f.end()
	both, one, defaults := withBoth(t, all)
	dropped := 0
	for _, o := range all {
		if slices.Contains(o.answer.Dropped, "slow@1") {
			dropped++
		}
	}
	if one < len(all)/3 || dropped < len(all)/6 || defaults > len(all)/3 || both+one+defaults != len(all) {
		t.Errorf("of %d answers under overload %d have both members, %d of one, and %d the default; %d name the expensive one as dropped: expected many of one member, and few defaults", len(all), both, one, defaults, dropped)
	}
	if n := g.metrics().samples[`xebec_ensemble_dropped_total{function="f"}`]; n < float64(dropped) {
		t.Errorf("xebec_ensemble_dropped_total is %v: expected %d", n, dropped)
	}
	if p := g.learned("f"); p.Dropped < uint64(dropped) {
		t.Errorf("describe counts %d dropped queries: expected %d", p.Dropped, dropped)
	}
	next := 0
	g.await("both members to answer again", func(ctx context.Context) (bool, string) {
		next++
		a, err := g.post(ctx, "/f/predict", "text/plain", fmt.Appendf(nil, "afterwards %d", next))
		return err == nil && len(a.Models) == 2, fmt.Sprint(a, err)
	})
	t.Logf("%d answers: %d of both members, %d of one, %d defaults; %d without the expensive one by plan", len(all), both, one, defaults, dropped)
}

// The plan drops the least useful member: of two equally expensive members on one device, the one that labels have shown
// to be wrong, although it is declared first.
func TestPlanDropsTheLeastUseful(t *testing.T) {
	t.Parallel()
	wrong := newDir(t)
	writeFile(t, wrong, "model.py", strings.Replace(slow, "return batch", `return [b"wrong"] * len(batch)`, 1))
	writeFile(t, wrong, "xebec.yaml", `
kind: Model
name: wrong
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [python, model.py], env: {EVALUATION_SECONDS: "0.02"}}
batching: {policy: fixed, max: 2}
cache: off
device: gpu0
`)
	// If the two other members are late, the answer of the wrong one alone has too little confidence.
	ensemble := function("f", "wrong, slow, cheap", "slo: 1s", "policy: {name: exp4, eta: 0.5}", "min_confidence: 0.5", theDefault)
	g := serve(t, "--config", slowModel(t, "device: gpu0"), "--config", wrong, "--config", manifest(t, testModel("cheap", nil), ensemble), "--device", "gpu0", "--python", python(t))
	for i := range 40 {
		input := fmt.Sprintf("labelled %d", i)
		a := g.raw("f", input, "Xebec-Slo-Ms", patient)
		if status, said := g.tell("f", `{"query_id":%d,"label":{"b64":%s}}`, *a.QueryID, toJSON(t, []byte(input))); status != 200 || said.Status != "counted" {
			t.Fatalf("a label is answered by %d %+v", status, said)
		}
	}
	p := g.learned("f")
	if good, bad := row(t, p.Candidates, "slow"), row(t, p.Candidates, "wrong"); !(good.Weight > 1.5*bad.Weight) {
		t.Fatalf("after labels the candidates are %+v", p.Candidates)
	}
	f := g.startFlood("f")
	g.await("the plan to limit the wrong member more than the right one", func(context.Context) (bool, string) {
		for _, fn := range g.plan().Functions {
			if fn.Name == "f" && len(fn.Candidates) == 3 {
				wrong, right, cheap := fn.Candidates[0], fn.Candidates[1], fn.Candidates[2]
				return wrong.Evaluated < right.Evaluated/2 && wrong.Gain < right.Gain && right.Evaluated < 1 && cheap.Evaluated == 1, fmt.Sprintf("%+v", fn)
			}
		}
		return false, "the function is not in it"
	})
	if ends := judge(t, f.end(), "ok", "default"); ends["default"] > ends["ok"] {
		t.Errorf("under overload the outcomes are %v: expected few defaults", ends)
	}
}
