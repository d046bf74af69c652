package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// pair starts two gateways that share a Redis server and have no declarations.
func pair(t *testing.T) (s *redistest.Server, a, b *gateway) {
	t.Helper()
	s = redistest.Start(t, redistest.Config{AppendOnly: true})
	return s, serve(t, "--store", s.URL()), serve(t, "--store", s.URL())
}

// answers is the condition that a function answers 7 with a number, by a version.
func answers(g *gateway, function string, number int, version string) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		a, err := g.tryAsk(ctx, function, 7, "")
		if err != nil {
			return false, err.Error()
		}
		return a.predicted() && a.number() == number && slices.Equal(a.Models, []string{version}), a.String()
	}
}

// exported returns everything persistent that a gateway has.
func exported(ctx context.Context, g *gateway) string {
	_, body := g.fetch(ctx, "http://"+g.admin+"/v1/export")
	return body
}

// awaitExport waits until the gateway has this persistent state.
func (g *gateway) awaitExport(what, want string) {
	g.t.Helper()
	g.await(what, func(ctx context.Context) (bool, string) {
		now := exported(ctx, g)
		return now == want, now
	})
}

// awaitSame waits until the gateways have the same persistent state, and returns it.
func awaitSame(gateways ...*gateway) string {
	gateways[0].t.Helper()
	var all string
	gateways[0].await("the gateways to have the same state", func(ctx context.Context) (bool, string) {
		all = exported(ctx, gateways[0])
		for _, g := range gateways[1:] {
			if other := exported(ctx, g); other != all {
				return false, fmt.Sprintf("one has\n%s\nand one\n%s", all, other)
			}
		}
		return true, ""
	})
	return all
}

// A change made at one of two gateways on a Redis server appears at the other: models, functions, versions, traffic
// rules, promotion, rollback and deletion. Both serve it. They share one history, which names the gateway of each change.
func TestGatewaysShareWhatIsDeclared(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	shown := func(what string, condition func(context.Context) (bool, string)) {
		t.Helper()
		start := time.Now()
		b.await(what+" to show at the other gateway", condition)
		t.Logf("%s appeared at the other gateway after %v", what, time.Since(start).Round(time.Millisecond))
	}
	a.must("apply", "-f", manifest(t, number("m", "noop"), function("f", "m", "slo: 60s")), "--wait")
	shown("a function", answers(b, "f", 0, "m@1"))
	a.must("apply", "-f", manifest(t, version(number("m", "echo"), "2")), "--wait")
	shown("a new version", answers(b, "f", 7, "m@2"))
	a.must("rollback", "m", "--reason", "on the one hand", "--wait")
	shown("a rollback", answers(b, "f", 0, "m@1"))
	a.must("promote", "m@2", "--wait")
	shown("a promotion", answers(b, "f", 7, "m@2"))
	a.must("traffic", "m", "--split", "1=100", "--label", "old=1")
	shown("traffic rules", answers(b, "f", 0, "m@1"))
	shown("a label", func(ctx context.Context) (bool, string) {
		st, err := b.trafficOf(ctx, "m")
		return err == nil && st.Spec.Labels["old"] == "1", fmt.Sprintf("%+v %v", st, err)
	})
	b.must("apply", "-f", manifest(t, function("g", "m@old", "slo: 60s")), "--wait") // and in the other direction
	a.await("a function of the other gateway", answers(a, "g", 0, "m@1"))
	a.must("delete", "function", "g")
	shown("a deletion", func(ctx context.Context) (bool, string) {
		answer, err := b.tryAsk(ctx, "g", 7, "")
		return err == nil && answer.Status == 404, answer.String()
	})
	awaitSame(a, b)
	ha, hb := a.must("history", "-o", "json"), b.must("history", "-o", "json")
	if ha != hb {
		t.Errorf("one gateway's history is\n%s\nand the other's\n%s", ha, hb)
	}
	gateways := map[string]string{}
	for _, e := range a.history("") {
		gateways[e.Action+" "+e.Name] = e.Gateway
	}
	if by := gateways["deleted g"]; by == "" || by == gateways["created g"] || by != gateways["created f"] {
		t.Errorf("the gateways in the history are %v", gateways)
	}
	if one, other := a.itself(), b.itself(); one.Revision != other.Revision || one.Revision == 0 || one.Store == nil || !one.Store.Shared {
		t.Errorf("one gateway says %+v, the other %+v", one, other)
	}
}

// Two gateways take part in a learned roll-out. The verdict that one of them reaches is valid at both.
func TestVerdictReachesTheOtherGateway(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	a.apply(number("m", "noop"), function("f", "m", "slo: 60s"))
	a.apply(version(number("m", "echo"), "2"), traffic("m", `serving: "1"`, `rollout: {version: "2", guard: {min_feedback: 20, max_error_increase: 0.5, max_p99_increase: 1000}}`))
	b.await("the roll-out to be known at the other gateway", func(ctx context.Context) (bool, string) {
		st, err := b.trafficOf(ctx, "m")
		return err == nil && st.Rollout != nil, fmt.Sprintf("%+v %v", st, err)
	})
	input := 0
	a.await("the roll-out to end well", func(ctx context.Context) (bool, string) {
		for range 10 {
			input++
			answer, err := a.tryAsk(ctx, "f", input, "")
			if err != nil || !answer.predicted() {
				return false, fmt.Sprint(answer, err)
			}
			if _, err := a.post(ctx, "/f/feedback", "application/json", fmt.Appendf(nil, `{"query_id":%d,"label":%d}`, *answer.QueryID, input)); err != nil {
				return false, err.Error()
			}
		}
		st, err := a.trafficOf(ctx, "m")
		return err == nil && st.Spec.Rollout == nil && st.Serving == "2", fmt.Sprintf("%+v %v", st, err)
	})
	b.await("the verdict at the other gateway", answers(b, "f", 7, "m@2"))
	awaitSame(a, b)
	events := b.history("m")
	if e := events[0]; e.Action != "promoted" || e.Version != "2" || !strings.HasPrefix(e.By, "rollout") || !strings.Contains(e.Detail, "m@2") {
		t.Errorf("the verdict in the other gateway's history is %+v", e)
	}
	promoted := 0
	for _, e := range events {
		if e.Action == "promoted" {
			promoted++
		}
	}
	if promoted != 1 {
		t.Errorf("the roll-out was promoted %d times: %+v", promoted, events)
	}
}

// Two gateways get different changes of one function at the same time, round after round. Each change is accepted, or
// refused with a conflict that says where to look, and is never made in part. In the end both gateways, the store and the
// history agree on the last change. Concurrent changes of different functions are both accepted.
func TestConcurrentApplies(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	a.apply(number("m", "echo"))
	b.await("the model", func(ctx context.Context) (bool, string) {
		m, err := b.modelStatus(ctx, "m")
		return err == nil && m.ReadyReplicas() > 0, fmt.Sprint(err)
	})
	type reply struct {
		status int
		body   string
		err    error
	}
	both := func(texts [2]string) (replies [2]reply) {
		var wg sync.WaitGroup
		for i, g := range []*gateway{a, b} {
			wg.Go(func() {
				r := &replies[i]
				r.status, r.body, r.err = g.applyHTTP(bounded(t), texts[i])
			})
		}
		wg.Wait()
		return replies
	}
	const rounds = 40
	taken, conflicts := 0, 0
	for round := range rounds {
		objectives := [2]string{fmt.Sprintf("slo: %dms", 10_000+2*round), fmt.Sprintf("slo: %dms", 10_000+2*round+1)}
		good := 0
		for i, r := range both([2]string{function("same", "m", objectives[0]), function("same", "m", objectives[1])}) {
			switch {
			case r.err != nil:
				t.Fatal(r.err)
			case r.status == 200:
				good++
			case r.status == 409 && strings.Contains(r.body, "xebec history same") && strings.Contains(r.body, "changed through another gateway"):
				conflicts++
			default:
				t.Fatalf("round %d, gateway %d: answered by %d %s: expected 200, or 409 that names the object", round, i, r.status, r.body)
			}
		}
		if taken += good; good == 0 {
			t.Errorf("round %d: both changes were refused: expected that one is accepted", round)
		}
	}
	if conflicts == 0 {
		t.Errorf("none of %d rounds had a conflict", rounds)
	}
	all := awaitSame(a, b)
	third := serve(t, "--store", s.URL())
	if kept := exported(bounded(t), third); kept != all {
		t.Errorf("the gateways have\n%s\nand the store has\n%s", all, kept)
	}
	events := a.history("same")
	if len(events) != taken {
		t.Errorf("%d changes were accepted, but the history has %d", taken, len(events))
	}
	for i, e := range events[1:] { // newest first
		if e.Revision >= events[i].Revision {
			t.Errorf("the history has revision %d after %d", events[i].Revision, e.Revision)
		}
	}
	f, err := a.functionSpec("same")
	if _, last, found := strings.Cut(events[0].Detail, "→ "); err != nil || !found || fmt.Sprintf("%q", f.SLO.String()) != last {
		t.Errorf("the last change in the history is %+v, but the function is %+v (%v)", events[0], f, err)
	}
	t.Logf("%d rounds: %d changes were accepted, %d refused with a conflict", rounds, taken, conflicts)

	for round := range 10 {
		for i, r := range both([2]string{function(fmt.Sprintf("a%d", round), "m"), function(fmt.Sprintf("b%d", round), "m")}) {
			if r.err != nil || r.status != 200 {
				t.Errorf("round %d, gateway %d: a concurrent change of another function is answered by %d %s %v: expected 200", round, i, r.status, r.body, r.err)
			}
		}
	}
	awaitSame(a, b)
	for _, name := range []string{"a9", "b9"} {
		for _, g := range []*gateway{a, b} {
			if answer := g.ask(name, 7, ""); answer.number() != 7 {
				t.Errorf("%s answers %v", name, answer)
			}
		}
	}
}

// functionSpec returns a function's declaration.
func (g *gateway) functionSpec(name string) (api.FunctionSpec, error) {
	f, err := g.described(bounded(g.t), name)
	return f.Spec, err
}

// A model is declared in the store and also lies in a directory that one of the gateways watches. That gateway serves the
// directory's model, and describe says what is wrong; the other gateway serves the store's. After the model is removed
// from the directory both serve the store's.
func TestStoreAndWatchedDirectoryDisagree(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{AppendOnly: true})
	models := newDir(t)
	watchable(t, models, "m", "1", "noop")
	a := serve(t, "--store", s.URL())
	b := serve(t, "--store", s.URL(), "--models", models, "--models-interval", "50ms")
	b.await("the directory's model", answers(b, "m", 0, "m@1"))
	a.apply(number("m", "echo"), function("f", "m", "slo: 60s"))
	b.await("describe to name the other source", func(context.Context) (bool, string) {
		text := b.must("describe", "gateway")
		return strings.Contains(text, "model m@1 is declared in the store") && strings.Contains(text, models) && strings.Contains(text, "remove one"), text
	})
	a.await("the store's model", answers(a, "f", 7, "m@1"))
	b.await("the directory's model", answers(b, "m", 0, "m@1"))
	watchable(t, models, "stays", "1", "noop") // an empty directory would be treated as a disk that is missing
	b.await("the directory's other model", answers(b, "stays", 0, "stays@1"))
	if err := os.RemoveAll(filepath.Join(models, "m")); err != nil {
		t.Fatal(err)
	}
	b.await("the store's model at the other gateway", answers(b, "f", 7, "m@1"))
	if text := b.must("describe", "gateway"); strings.Contains(text, "remove one") {
		t.Errorf("with one source left describe gateway prints\n%s", text)
	}
}
