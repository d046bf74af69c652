package apptest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Ten clients label a model's versions and one rolls it back, all at once: on one gateway, and on two that share a Redis
// server. Every acknowledged change is there afterwards, and every refused one was reported as refused.
func TestChangesOfOneRuleAtOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) []*gateway{
		"none": func(t *testing.T) []*gateway { return []*gateway{serve(t)} },
		"file": func(t *testing.T) []*gateway { return []*gateway{serve(t, "--data-dir", newDir(t))} },
		"redis": func(t *testing.T) []*gateway {
			_, a, b := pair(t)
			return []*gateway{a, b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gateways := start(t)
			g := gateways[0]
			g.apply(number("m", "echo"), version(number("m", "noop"), "2"))
			for _, g := range gateways {
				g.awaitTraffic("m", "version 2 to serve", func(t api.TrafficStatus) bool { return t.Serving == "2" })
			}
			for round := range 4 {
				labelAndRollBack(t, round, gateways)
				g.must("traffic", "m", "--clear", "labels", "--clear", "rollback")
				for _, g := range gateways {
					g.awaitTraffic("m", "version 2 to serve again", func(t api.TrafficStatus) bool {
						return t.Serving == "2" && t.Spec.Rollback == nil && t.Spec.Labels == nil
					})
				}
			}
		})
	}
}

func labelAndRollBack(t *testing.T, round int, gateways []*gateway) {
	const people = 10
	var all sync.WaitGroup
	var results [people + 1]result
	for i := range results {
		all.Go(func() {
			args := []string{"traffic", "m", "--label", fmt.Sprintf("l%d=1", i)}
			if i == people {
				args = []string{"rollback", "m", "--to", "1"}
			}
			results[i] = gateways[i%len(gateways)].xebec(args...)
		})
	}
	all.Wait()
	awaitSame(gateways...)
	rules, err := gateways[0].trafficOf(bounded(t), "m")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for i, r := range results {
		there := rules.Spec.Rollback != nil
		if i < people {
			there = rules.Spec.Labels[fmt.Sprintf("l%d", i)] == "1"
		}
		switch {
		case r.status == 0:
			made++
			if !there {
				t.Errorf("round %d: change %d was acknowledged but is not there: %s", round, i, toJSON(t, rules.Spec))
			}
		case r.status != 1 || !strings.Contains(r.err, "nothing was changed"):
			t.Errorf("round %d: change %d ended with status %d and %q", round, i, r.status, r.err)
		case there:
			t.Errorf("round %d: change %d was refused but is there: %q", round, i, r.err)
		}
	}
	if made < 5 { // a refused change has lost each of its attempts to another change
		t.Errorf("round %d: only %d changes were made", round, made)
	}
	t.Logf("round %d: %d of %d changes were made", round, made, len(results))
}

// Concurrent changes of different bounds of a model do not undo each other.
func TestScaleAtOnce(t *testing.T) {
	t.Parallel()
	g := serve(t)
	g.apply(number("m", "echo"))
	for round := range 5 {
		most, idle := 5+round, 10+round
		var all sync.WaitGroup
		var results [2]result
		for i, flags := range [][]string{{"--max", fmt.Sprint(most)}, {"--idle", fmt.Sprintf("%dm", idle)}} {
			all.Go(func() { results[i] = g.xebec(append([]string{"scale", "m"}, flags...)...) })
		}
		all.Wait()
		for i := range results {
			results[i].wants(t, "scale", 0, "model m@1 updated", "")
		}
		m, err := g.modelStatus(bounded(t), "m")
		if err != nil || m.Spec.Replicas.Max != most || int(m.Spec.Replicas.Idle.Minutes()) != idle {
			t.Errorf("after concurrent --max %d and --idle %dm the bounds are %+v (%v)", most, idle, m.Spec.Replicas, err)
		}
	}
}

// A program reads an object's tag and sends it back with its change.
func TestChangesAtARevisionByHTTP(t *testing.T) {
	t.Parallel()
	g := serve(t, "--data-dir", newDir(t))
	g.apply(number("m", "echo"), function("f", "m"))
	_, unruled, _ := ask(t, g, http.MethodGet, "/v1/traffic/m", "", "")
	rule := func(label string) string { return traffic("m", `serving: "1"`, "labels: {"+label+`: "1"}`) }
	if status, _, body := ask(t, g, http.MethodPost, "/v1/apply", unruled, rule("a")); status != 200 || unruled != `"0"` {
		t.Fatalf("the first rules, with the tag %s for no object, are answered by %d %s", unruled, status, body)
	}
	_, first, _ := ask(t, g, http.MethodGet, "/v1/traffic/m", "", "")
	if status, _, body := ask(t, g, http.MethodPost, "/v1/apply", first, rule("b")); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for tag, change := range map[string]string{unruled: rule("c"), first: rule("c")} {
		status, _, body := ask(t, g, http.MethodPost, "/v1/apply", tag, change)
		failed, err := decode[api.ErrorBody](body)
		if err != nil || status != 409 || failed.Error.Code != "conflict" || len(failed.Error.Stale) != 1 {
			t.Fatalf("at %s: %d %s (%v)", tag, status, body, err)
		}
		if s := failed.Error.Stale[0]; s.Kind != api.KindTraffic || s.Name != "m" || s.Action != "updated" || s.By == "" || s.Time.IsZero() || s.Revision == 0 {
			t.Errorf("with tag %s the answer is %+v", tag, s)
		}
	}
	for _, path := range []string{"/v1/models/m/promote", "/v1/models/m/rollback"} {
		if status, _, body := ask(t, g, http.MethodPost, path, first, "{}"); status != 409 || !strings.Contains(body, `"stale"`) {
			t.Errorf("%s at an old revision is answered by %d %s", path, status, body)
		}
	}
	// A change of several objects has their revisions in the documents: all must match, or nothing is changed.
	_, f, _ := ask(t, g, http.MethodGet, "/v1/functions/f", "", "")
	_, now, _ := ask(t, g, http.MethodGet, "/v1/traffic/m", "", "")
	two := func(traffic, function string) string {
		return rule("d") + "revision: " + strings.Trim(traffic, `"`) + "\n---\nkind: Function\nname: f\nmodels: [m]\nslo: 77ms\nrevision: " + strings.Trim(function, `"`) + "\n"
	}
	if status, _, body := ask(t, g, http.MethodPost, "/v1/apply", "", two(first, f)); status != 409 {
		t.Errorf("two objects, one of them at an old revision, are answered by %d %s", status, body)
	}
	if spec, err := g.functionSpec("f"); err != nil || spec.SLO.Milliseconds() == 77 {
		t.Errorf("part of a refused change was made: %+v %v", spec, err)
	}
	if status, _, body := ask(t, g, http.MethodPost, "/v1/apply", "", two(now, f)); status != 200 {
		t.Errorf("two objects at their current revisions are answered by %d %s", status, body)
	}
	if status, _, body := ask(t, g, http.MethodDelete, "/v1/functions/f", f, ""); status != 409 {
		t.Errorf("a deletion at an old revision is answered by %d %s", status, body)
	}
	if exported := g.must("export"); strings.Contains(exported, "revision") {
		t.Errorf("the export has revisions, which would be outdated when it is applied:\n%s", exported)
	}
}

// ask calls the admin API, with If-Match unless it is empty, and returns the answer's tag.
func ask(t *testing.T, g *gateway, method, path, match, body string) (status int, tag, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t), method, "http://"+g.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	if body == "{}" {
		req.Header.Set("Content-Type", "application/json")
	}
	if match != "" {
		req.Header.Set("If-Match", match)
	}
	res, err := g.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("ETag"), string(text)
}
