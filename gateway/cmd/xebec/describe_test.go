package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestOvercommittedNode: at least 0 is free.
func TestOvercommittedNode(t *testing.T) {
	c := newConsole("")
	n := api.NodeStatus{
		Budget: api.ResourceStatus{CPU: 2, MemoryBytes: 600 << 20, GPU: 1}, Free: api.ResourceStatus{CPU: -0.5, MemoryBytes: -30 << 20, GPU: -1}, From: "what the machine has", Awake: 3,
	}
	if err := c.page(func(p *page) error { p.node(&n); return nil }); err != nil {
		t.Fatal(err)
	}
	const want = "0 of 2 cores free, 0 of 600 MiB of memory, 0 of 1 GPUs (what the machine has)"
	if got := c.stdout.String(); !strings.Contains(got, want) {
		t.Errorf("got\n%sexpected %q", got, want)
	}
}

// TestOneOfEach: what is counted is singular where there is one of it.
func TestOneOfEach(t *testing.T) {
	c := newConsole("")
	m := api.ModelStatus{
		Spec:   api.ModelSpec{Batching: api.BatchingSpec{Max: 1, MaxBytes: 1}, Queue: api.QueueSpec{Max: 1}, Cache: api.CacheOn},
		Hedges: &api.HedgeStatus{Hedged: 1, Wins: 1}, Streams: &api.StreamStatus{Open: 1, Outputs: 3, Ended: api.StreamEnds{Finished: 1}}, Cache: &api.ModelCacheStatus{On: true, Hits: 1, Misses: 1},
		Version:  api.VersionStatus{Phase: api.PhaseAvailable, Validation: &api.ValidationStatus{WarmedUp: 1, Queries: 1, Matched: 1, Extremes: 1}, Rehearsal: &api.RehearsalStatus{Replicas: 1, Recent: 1, Evaluated: 1}, Drift: &api.DriftStatus{Served: 1}},
		Replicas: []api.ReplicaStatus{{Queries: 1, Batches: 1, Outstanding: 1, Profile: api.Profile{Samples: 1}}},
		Capacity: &api.CapacityStatus{ColdStarts: &api.ColdStartStatus{Count: 1}},
	}
	if err := c.page(func(p *page) error {
		p.model(&m)
		p.store("Store", &api.StoreStatus{Pending: 1, Lost: 1})
		p.caches(&api.CacheStatus{Entries: 1, Collisions: 1})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := c.stdout.String()
	for _, want := range []string{
		"at most 1 query and 1 byte, hold", "0 of at most 1 query\n", "1 query in 1 batch; cap 0, 1 query outstanding", "over 1 batch\n", "1 cold start:",
		"1 query went to a second replica too, which answered first 1 time\n", "on, 1 hit, 1 miss, ", "1 warm-up query; 1 of 1 query (", "1 extreme input, ",
		"index of 1 query, ", "1 state to be written, 1 update lost", "1 prediction in ", "1 collision\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// TestDescribeReplica: describe says why a cap is smaller than the replica could do, and how many batches it evaluates at once.
func TestDescribeReplica(t *testing.T) {
	c := newConsole("")
	if err := c.page(func(p *page) error {
		p.replica(&api.ReplicaStatus{Cap: 8, CapWhy: "single queries make batches fail", Concurrency: 4})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"; cap 8 (single queries make batches fail), 0 queries outstanding", "evaluates up to 4 batches at once"} {
		if got := c.stdout.String(); !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// A description says whether a process spins before it sleeps, and if not why.
func TestDescribeBusyPoll(t *testing.T) {
	for want, status := range map[string]*api.BusyPollStatus{
		"": nil,
		"Busy polling:  at most 50µs before it sleeps, while it expects work\n": {Micros: 50},
		"Busy polling:  off: there are 2 cores (1ms configured)\n":              {Micros: 1000, Off: "there are 2 cores"},
	} {
		c := newConsole("")
		if err := c.page(func(p *page) error { p.busyPoll(status); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := c.stdout.String(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// TestDescribeVersion: a description of one version in JSON is that of its model with one version, and the functions that may ask it.
func TestDescribeVersion(t *testing.T) {
	g := newFakeGateway(t)
	for ref, versions := range map[string]int{"digits-svm": 2, "digits-svm@2": 1, "digits-svm@1": 1} {
		var d api.ModelDescription
		if out := execute(t, g, "", []string{"describe", "model", ref, "-o", "json"}); json.Unmarshal([]byte(out), &d) != nil {
			t.Fatalf("%s: %s", ref, out)
		}
		if len(d.Models) != versions || !strings.HasPrefix(d.Models[0].Spec.ID().String(), ref) || len(d.Functions) != 1 || d.Traffic == nil {
			t.Errorf("%s: %d versions, %d functions, traffic %v", ref, len(d.Models), len(d.Functions), d.Traffic)
		}
	}
	version := func(v string) api.ModelStatus { return api.ModelStatus{Spec: api.ModelSpec{Name: "m", Version: v}} }
	asks := func(ref string) api.FunctionStatus {
		return api.FunctionStatus{Spec: api.FunctionSpec{Name: "of-" + strings.ReplaceAll(ref, "@", "-"), Models: []string{ref}}}
	}
	d := api.ModelDescription{Models: []api.ModelStatus{version("1"), version("2")}, Functions: []api.FunctionStatus{asks("m"), asks("m@1"), asks("m@2")}}
	if err := onlyVersion(&d, api.ModelID{Name: "m", Version: "2"}); err != nil || len(d.Functions) != 2 || d.Functions[1].Spec.Name != "of-m-2" {
		t.Errorf("the functions of m@2 are %+v, %v: expected those of m and m@2", d.Functions, err)
	}
}
