package apptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A gateway that is asked to end first stores what it has learned last: nothing is lost, globally and for each context.
func TestStopKeepsEverythingLearned(t *testing.T) {
	t.Parallel()
	args := []string{"--config", manifest(t, threeModels("{name: exp4, eta: 0.5}")), "--data-dir", newDir(t)}
	g := serve(t, args...)
	g.teach("f", 1, 10, `,"context":"ann"`, itself)
	g.teach("f", 1, 10, `,"context":"bob"`, zero)
	before := g.learned("f")
	g.stop()
	again := serve(t, args...)
	after := again.awaitLearned("f", "the learned states", func(p api.PolicyStatus) bool { return total(p.Candidates) > 0 })
	for i, c := range before.Candidates {
		if got := after.Candidates[i]; got.Count != c.Count || got.MeanLoss != c.MeanLoss || got.Weight != c.Weight {
			t.Errorf("before the restart %+v, and after it %+v", c, got)
		}
	}
	known(again, "ann", "right", "worse")
	known(again, "bob", "worse", "right")
}

// known waits until one model weighs more than twice as much as another for a user.
func known(g *gateway, user, better, worse string) {
	g.t.Helper()
	g.await(fmt.Sprintf("%s to be known", user), func(ctx context.Context) (bool, string) {
		if _, err := g.tryAsk(ctx, "f", 5, "", "Xebec-Context", user); err != nil {
			return false, err.Error()
		}
		f, err := g.described(ctx, "f")
		if err != nil {
			return false, err.Error()
		}
		for _, c := range f.Policy.Contexts {
			if c.Context == user {
				return row(g.t, c.Candidates, better).Weight > 2*row(g.t, c.Candidates, worse).Weight, fmt.Sprintf("%+v", c)
			}
		}
		return false, fmt.Sprintf("%+v", f.Policy)
	})
}

// Contexts beyond --contexts are moved from memory to the store, least recently used first, and are loaded when they are
// used again. Their number in memory is bounded, however many contexts clients invent.
func TestContextsSpillToTheStore(t *testing.T) {
	t.Parallel()
	const most = 64
	g := serve(t, "--config", manifest(t, threeModels("{name: exp4, eta: 0.5}")), "--data-dir", newDir(t), "--contexts", fmt.Sprint(most))
	g.teach("f", 1, 10, `,"context":"ann"`, itself)
	g.saved("f")
	for i := range 20 * most {
		if a := g.ask("f", 5, fmt.Sprintf(`,"context":"made up %d"`, i)); !a.predicted() {
			t.Fatalf("query %d is answered by %v", i, a)
		}
	}
	p := g.learned("f")
	if p.ContextsInMemory > most || p.ContextsInMemory == 0 {
		t.Errorf("%d contexts are in memory: expected at most %d", p.ContextsInMemory, most)
	}
	m := g.metrics().samples
	if m["xebec_policy_contexts{}"] > most || m["xebec_policy_contexts_evicted_total{}"] < 10*most {
		t.Errorf("the metrics say %v contexts, %v evicted", m["xebec_policy_contexts{}"], m["xebec_policy_contexts_evicted_total{}"])
	}
	known(g, "ann", "right", "worse")
}

// A function's learned state is deleted with it: declared again under its name it starts from nothing. A change of the
// policy's parameters keeps the state; another policy does not use it.
func TestDeletedFunctionsAreForgotten(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", newDir(t)}
	over := func(policy string) string {
		return function("f", "right, wrong", "slo: 60s", "policy: "+policy)
	}
	g := serve(t, args...)
	g.apply(number("right", "echo"), number("wrong", "noop"), over("{name: exp4, eta: 0.5}"))
	g.teach("f", 1, 10, "", itself)
	before := g.learned("f")
	g.apply(over("{name: exp4, eta: 0.6}"))
	if n := total(g.learned("f").Candidates); n != total(before.Candidates) {
		t.Errorf("with another parameter %v losses are counted: expected %v", n, total(before.Candidates))
	}
	g.saved("f")
	g.must("delete", "function", "f")
	g.apply(over("{name: exp4, eta: 0.5}"))
	g.ask("f", 1, "")
	if p := g.saved("f"); total(p.Candidates) != 0 || p.Candidates[0].Weight != p.Candidates[1].Weight {
		t.Errorf("a function that was deleted and declared again has learned %+v", p.Candidates)
	}
	g.teach("f", 1, 10, "", zero)
	g.saved("f")
	if p := g.learned("f"); row(t, p.Candidates, "wrong").MeanLoss != 0 || row(t, p.Candidates, "right").MeanLoss != 1 {
		t.Errorf("after other labels it has learned %+v", p.Candidates)
	}
	g.apply(over("exp3"))
	if p := g.learned("f"); p.Name != "exp3" || p.Candidates[0].Weight != p.Candidates[1].Weight {
		t.Errorf("with another policy it has learned %+v", p)
	}
	if text := g.must("describe", "function", "f"); !strings.Contains(text, "state.db") {
		t.Errorf("describe does not name the store:\n%s", text)
	}

	apart := serve(t, "--config", manifest(t, threeModels("exp3")))
	if text := apart.must("describe", "function", "f"); !strings.Contains(text, "memory only") || apart.learned("f").Store != nil {
		t.Errorf("without a data directory describe says\n%s", text)
	}
}
