package apptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// twoGateways share a Redis server and have the same function f, an ensemble.
func twoGateways(t *testing.T, s *redistest.Server) (a, b *gateway) {
	t.Helper()
	config := manifest(t, threeModels("{name: exp4, eta: 0.1}"))
	return serve(t, "--config", config, "--store", s.URL()), serve(t, "--config", config, "--store", s.URL())
}

// allKnown waits until both gateways have counted n losses of each candidate, no more and no less, with the same weights.
// Queries make a gateway read what others have learned.
//
// Counts decay by one part in a thousand with each loss (selection.CountLosses). The count of n losses is therefore
// smaller than n by at most n²/1000, which is below 1 for the numbers used here.
func allKnown(n int, gateways ...*gateway) {
	gateways[0].t.Helper()
	for i, g := range gateways {
		var last []api.CandidateLearning
		g.await(fmt.Sprintf("gateway %d to know of %d losses", i, n), func(ctx context.Context) (bool, string) {
			if a, err := g.tryAsk(ctx, "f", 1, ""); err != nil || !a.predicted() {
				return false, fmt.Sprint(a, err)
			}
			f, err := g.described(ctx, "f")
			if err != nil {
				return false, err.Error()
			}
			last = f.Policy.Candidates
			for _, c := range last {
				if c.Count > float64(n) {
					g.t.Fatalf("gateway %d has counted %v losses of %s: expected %d", i, c.Count, c.Ref, n)
				}
				if c.Count <= float64(n)-1 {
					return false, fmt.Sprintf("%+v, store %+v", last, f.Policy.Store)
				}
			}
			return true, ""
		})
		best := slices.MaxFunc(last, func(a, b api.CandidateLearning) int { return int(1e6 * (a.Weight - b.Weight)) })
		if best.Ref != "right" {
			g.t.Errorf("gateway %d weighs %+v: expected the right model to have the largest weight", i, last)
		}
	}
}

// Two gateways that share a Redis server converge to the same weights: feedback to one reaches the other. Meanwhile the
// server is killed. Predictions and feedback continue, and describe and the metrics say that the store is away and how
// many updates wait. When it is back both gateways converge, and no update is lost or counted twice.
func TestGatewaysShareRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{AppendOnly: true})
	a, b := twoGateways(t, s)
	a.teach("f", 1, 8, "", itself)
	allKnown(8, a, b)
	b.teach("f", 1, 4, "", itself)
	allKnown(12, a, b)
	if st := a.saved("f").Store; st == nil || !st.Shared || !strings.Contains(st.Name, s.Addr()) || st.Lost != 0 {
		t.Errorf("describe says of the store %+v", st)
	}

	s.Kill()
	a.teach("f", 100, 5, "", itself)
	b.teach("f", 200, 5, "", itself)
	for _, g := range []*gateway{a, b} {
		p := g.awaitLearned("f", "the store to be unavailable", func(p api.PolicyStatus) bool { return p.Store.Away && p.Store.Pending > 0 })
		if p.Store.LastError == "" || p.Feedback.Counted != map[*gateway]uint64{a: 13, b: 9}[g] || row(t, p.Candidates, "right").Count <= 15 {
			t.Errorf("while the store is away describe says %+v, %+v", p, p.Store)
		}
		if text := g.must("describe", "function", "f"); !strings.Contains(text, "away: ") || !strings.Contains(text, "to be written") {
			t.Errorf("while the store is away describe says\n%s", text)
		}
		m := g.metrics().samples
		if m["xebec_policy_store_away{}"] != 1 || m["xebec_policy_pending_states{}"] < 1 || m["xebec_policy_store_errors_total{}"] < 1 {
			t.Errorf("while the store is away the metrics say %v, %v pending, %v errors", m["xebec_policy_store_away{}"], m["xebec_policy_pending_states{}"], m["xebec_policy_store_errors_total{}"])
		}
		g.teach("f", 300, 1, "", itself)
	}
	s.Restart()
	allKnown(24, a, b)
	for _, g := range []*gateway{a, b} {
		if st := g.saved("f").Store; st.Lost != 0 {
			t.Errorf("%d updates were dropped", st.Lost)
		}
	}
	allKnown(24, a, b)
	wa, wb := a.learned("f").Candidates, b.learned("f").Candidates
	for i := range wa {
		if d := wa[i].Weight - wb[i].Weight; d > 1e-6 || d < -1e-6 {
			t.Errorf("one gateway weighs %+v, the other %+v", wa, wb)
		}
	}

	// A third gateway starts with the shared state. One with another database starts without it.
	third := serve(t, "--config", manifest(t, threeModels("{name: exp4, eta: 0.1}")), "--store", s.URL())
	allKnown(24, third)
	apart := serve(t, "--config", manifest(t, threeModels("{name: exp4, eta: 0.1}")), "--store", strings.TrimSuffix(s.URL(), "/0")+"/1")
	apart.ask("f", 1, "")
	if n := total(apart.saved("f").Candidates); n != 0 {
		t.Errorf("a gateway with another database has counted %v losses", n)
	}
}

// Learned states of contexts are shared too: a context that one gateway has never seen is known there when it is used.
func TestContextsAreShared(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{})
	a, b := twoGateways(t, s)
	a.teach("f", 1, 20, `,"context":"ann"`, itself)
	a.teach("f", 1, 20, `,"context":"bob"`, zero)
	a.saved("f")
	for user, better := range map[string]string{"ann": "right", "bob": "worse"} {
		b.await("the other gateway to know "+user, func(ctx context.Context) (bool, string) {
			if _, err := b.tryAsk(ctx, "f", 5, "", "Xebec-Context", user); err != nil {
				return false, err.Error()
			}
			f, err := b.described(ctx, "f")
			if err != nil {
				return false, err.Error()
			}
			for _, c := range f.Policy.Contexts {
				if c.Context == user {
					other := map[string]string{"right": "worse", "worse": "right"}[better]
					return row(t, c.Candidates, better).Weight > 2*row(t, c.Candidates, other).Weight, fmt.Sprintf("%+v", c)
				}
			}
			return false, fmt.Sprintf("%+v", f.Policy)
		})
	}
}

// A Redis server that is stopped, with its connections open, delays no prediction and no feedback. When it continues it
// gets the waiting updates.
func TestStoppedRedisDelaysNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{AppendOnly: true})
	a, b := twoGateways(t, s)
	a.teach("f", 1, 4, "", itself)
	allKnown(4, a, b)
	s.Pause()
	// Each query has an input and a context of its own, so some states would have to be read from the store.
	const queries = 200
	for i := range queries {
		more := fmt.Sprintf(`,"context":"user %d"`, i)
		if p := a.ask("f", 1000+i, more); !p.predicted() || len(p.Models) != 3 {
			t.Fatalf("query %d is answered by %v", i, p)
		}
	}
	a.teach("f", 1, 10, "", itself)
	if p := a.learned("f"); p.Store.Pending == 0 || p.Feedback.Counted != 14 {
		t.Errorf("while the store is stopped describe says %+v, %+v", p, p.Store)
	}
	s.Resume()
	allKnown(14, a, b)
	if p := a.saved("f"); p.Store.Lost != 0 {
		t.Errorf("%d updates were dropped", p.Store.Lost)
	}
}

// A --store that is not an address is refused at the start. An unreachable server is not: the gateway serves without it.
func TestStoreArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ store, says string }{
		{"http://127.0.0.1:6379", "--store"},
		{"redis://", "--store"},
		{"/nowhere/at/all/state.db", "--store"},
	} {
		g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", c.store)
		g.gone(1)
		if !strings.Contains(g.logText(), c.says) {
			t.Errorf("the log of serve --store %s is:\n%s", c.store, g.logText())
		}
	}
	g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", manifest(t, threeModels("exp3")), "--store", "redis://127.0.0.1:1/0")
	g.await("the gateway's addresses", g.readAddresses) // it is not ready without its store, and serves what --config declares
	for _, m := range []string{"right", "wrong", "worse"} {
		g.awaitReplicas(m, 1)
	}
	g.teach("f", 1, 10, "", itself)
	g.awaitLearned("f", "the store to be unavailable", func(p api.PolicyStatus) bool {
		return p.Store.Away && p.Store.Pending > 0 && p.Feedback.Counted == 10
	})
}
