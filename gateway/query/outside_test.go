package query

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// load puts further versions of the candidates' models, "a@3", into the table.
func (c *crowd) load(answers map[string]func(*scheduler.Item)) map[string]*Model {
	t := *c.p.table.Load()
	versions := map[api.ModelID]*Model{}
	for i := range c.fn.Candidates {
		m := c.fn.Candidates[i].Model
		versions[m.ID] = m
	}
	models := map[string]*Model{}
	for ref, answer := range answers {
		name, version, _ := strings.Cut(ref, "@")
		id := api.ModelID{Name: name, Version: version}
		m := NewModel(id, c.fn.Candidates[0].Model.Signature, &querytest.Lane{Submit: answer}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		models[ref], versions[id] = m, m
	}
	t.Versions = versions
	c.p.Publish(&t)
	return models
}

// TestAnyLoadedVersionPerQuery: a query names a version that the function does not.
func TestAnyLoadedVersionPerQuery(t *testing.T) {
	for _, policy := range []string{"single", "exp3", "exp4"} {
		models := []func(*scheduler.Item){says(1)}
		if policy != "single" {
			models = append(models, says(2))
		}
		c := gather(t, policy, nil, floats4, models)
		others := c.load(map[string]func(*scheduler.Item){"a@3": says(7), "a@10": says(8), "a@9": says(9), "other@1": says(0)})
		others["a@9"].Closed.Store(true)
		for range 20 {
			p := c.ask(`{"input":[1,2,3,4],"models":["a@3"]}`)
			if p.Output != 7 || fmt.Sprint(p.Models) != "[a@3]" {
				t.Fatalf("%s: a query for a@3 was answered %v by %v", policy, p.Output, p.Models)
			}
		}
		if policy == "exp4" {
			if p := c.ask(`{"input":[1,2,3,4],"models":["b","a@10","a@10"]}`); fmt.Sprint(p.Models) != "[a@10 b@1]" {
				t.Errorf("a query for a@10 and b was answered by %v", p.Models)
			}
		}
		if p := c.ask(`{"input":[1,2,3,4],"models":["a"]}`); p.Output != 1 || fmt.Sprint(p.Models) != "[a@1]" {
			t.Errorf("%s: the next query was answered %v by %v", policy, p.Output, p.Models)
		}
		for models, want := range map[string]string{
			`["a@4"]`:        `there is no version "a@4": expected one of a@1, a@3, a@10`,
			`["a@9"]`:        "a@9 is declared but not loaded",
			`["other@1"]`:    `"other@1" is no candidate of function f`,
			`["a@3","a@10"]`: "at most one version in the place of each candidate of model",
			`["a@"]`:         `there is no version "a@"`,
			`["a@9","a@3"]`:  "loaded are a@1, a@3, a@10",
		} {
			if got, err := c.try(`{"input":[1,2,3,4],"models":` + models + `}`); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: models %s are answered %+v (%v), want %q", policy, models, got, err, want)
			}
		}
	}
}

// TestFeedbackOnAnotherVersion counts for the version that was asked, and teaches the policy nothing.
func TestFeedbackOnAnotherVersion(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2)})
	m := c.load(map[string]func(*scheduler.Item){"a@3": says(7)})["a@3"]
	before := fmt.Sprint(c.weights(""))
	p := c.ask(`{"input":[1,2,3,4],"models":["a@3"]}`)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, p.ID), Counted)
	if n, sum := m.Judged.Read(); n != 1 || sum != 1 {
		t.Errorf("a@3 has %d labels with losses of %v, want 1 and 1", n, sum)
	}
	if n, _ := c.fn.Candidates[0].Model.Judged.Read(); n != 0 {
		t.Error("the label of a@3 counts for a@1")
	}
	if n, _ := c.fn.Losses[0].Read(); n != 0 || fmt.Sprint(c.weights("")) != before {
		t.Errorf("the policy has learned from a version that is no candidate: %v, before %v", c.weights(""), before)
	}
	p = c.ask(`{"input":[1,2,3,4]}`)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, p.ID), Counted)
	if n, sum := c.fn.Candidates[0].Model.Judged.Read(); n != 1 || sum != 0 {
		t.Errorf("a@1 has %d labels with losses of %v, want 1 and 0", n, sum)
	}
	if n, sum := c.fn.Candidates[1].Model.Judged.Read(); n != 1 || sum != 1 {
		t.Errorf("b@1 has %d labels with losses of %v, want 1 and 1", n, sum)
	}
}

// TestARuleDoesNotMoveANamedVersion: with a split, a query for a third version gets that one.
func TestARuleDoesNotMoveANamedVersion(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	rule := NewRule("a", nil)
	rule.SetPart(1)
	c.republish(func(fn *Function) { fn.Candidates[0].Route = &Route{Rule: rule, Model: c.other(0, says(2)), Queue: 1} })
	c.load(map[string]func(*scheduler.Item){"a@3": says(7)})
	if p := c.ask(`{"input":[1,2,3,4],"models":["a@3"]}`); p.Output != 7 || fmt.Sprint(p.Models) != "[a@3]" {
		t.Errorf("a query for a@3 was answered %v by %v", p.Output, p.Models)
	}
	if n := rule.Other.Queries.Load() + rule.Serving.Queries.Load(); n != 0 {
		t.Errorf("the rule counts %d queries that name another version", n)
	}
	if p := c.ask(input); p.Output != 2 {
		t.Errorf("a query without a version was answered %v", p.Output)
	}
}

// TestVersionsOfOtherSignatures cannot stand for a candidate.
func TestVersionsOfOtherSignatures(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	m := c.load(map[string]func(*scheduler.Item){"a@3": says(7)})["a@3"]
	m.Signature = floatsOut
	if _, err := c.try(`{"input":[1,2,3,4],"models":["a@3"]}`); err == nil || !strings.Contains(err.Error(), "a@3 has other inputs or outputs than function f, which has those of a@1") {
		t.Errorf("a version with other outputs: %v", err)
	}
}
