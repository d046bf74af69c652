package apptest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// storeWriter makes the tests use existing programs and write stores with them. See testdata/stores/README.md.
var storeWriter = flag.String("store-writer", "", "NAME=DIR: write "+storesDir+"/NAME with the programs xebec and xebec-testworker in DIR, and check it with them")

// writerPrograms returns the directory of the programs that -store-writer names.
func writerPrograms() (dir string, err error) {
	name, dir, found := strings.Cut(*storeWriter, "=")
	if !found || name == "" || strings.ContainsAny(name, "/.") {
		return "", fmt.Errorf("-store-writer %s: expected NAME=DIR", *storeWriter)
	}
	return filepath.Abs(dir)
}

// writeStores writes a data directory and a Redis database, each with what the gateway reports of it.
func writeStores(t *testing.T) {
	t.Helper()
	name, _, _ := strings.Cut(*storeWriter, "=")
	for kind, shared := range map[string]bool{"file": false, "redis": true} {
		s := newStore(t, shared)
		g := s.serve()
		requests := s.declare(g)
		w := s.witness(g, requests)
		g.stop()
		folder := filepath.Join(storesDir, name, kind)
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(w, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, folder, "witness.json", string(text)+"\n")
		if shared {
			writeFile(t, folder, "redis.txt", s.server.Dump())
			continue
		}
		content, err := os.ReadFile(filepath.Join(s.data, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, folder, "data/state.db.gz", string(pack(t, content)))
		id, err := os.ReadFile(filepath.Join(s.data, "gateway.id"))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, folder, "data/gateway.id", string(id))
		if err := os.CopyFS(filepath.Join(folder, "data/log"), os.DirFS(s.log)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if host != "xebec" {
		t.Errorf("the history has the name of this machine, %s: write the stores where the host's name is xebec", host)
	}
}

// declare fills a store with everything that a gateway persists, through commands, queries and feedback. It returns requests with exactly one right
// answer. No declaration has a path of this machine: models name the worker without a directory, and the only directory is the root.
func (s *store) declare(g *gateway) (requests []asked) {
	t := s.t
	t.Helper()
	apply := func(parts ...string) {
		t.Helper()
		if status, answer, err := g.applyHTTP(bounded(t), strings.ReplaceAll(strings.Join(parts, ""), programs.worker, filepath.Base(programs.worker))); err != nil || status != 200 {
			t.Fatalf("apply is answered by %d %s, %v", status, answer, err)
		}
	}
	expect := func(path, body string) { requests = append(requests, asked{Path: path, Body: body}) }

	// A model with promotions, a rollback and labels, and functions that use them.
	apply(number("m", "noop"), function("f", "m", "slo: 60s"))
	apply(version(number("m", "echo"), "2"))
	g.awaitServing("m@2")
	g.must("traffic", "m", "--label", "tried=2", "--label", "old=1", "--serving", "1")
	apply(function("tried", "m@tried", "slo: 60s"))
	g.must("promote", "m@2", "--wait")
	apply(version(number("m", "noop"), "3"))
	g.must("promote", "m@3", "--wait")
	g.must("rollback", "m", "--reason", "answers 0: \"always\", über alles", "--wait")
	g.awaitServing("m@2")
	for _, f := range []string{"f", "tried"} {
		expect("/"+f+"/predict", `{"input":7}`)
	}
	for _, path := range []string{"m", "m/versions/old", "m/versions/tried"} {
		expect("/v2/models/"+path+"/infer", `{"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[7]}]}`)
	}

	// Deleted and changed objects.
	apply(number("short", "noop"), function("gone", "m", "slo: 60s"), function("gone-too", "short", "slo: 60s"))
	g.must("delete", "function", "gone")
	g.must("delete", "function", "gone-too")
	g.must("delete", "model", "short")
	expect("/gone/predict", `{"input":7}`)
	apply(number("other", "noop"), function("changed", "m", "slo: 60s"))
	apply(function("changed", "m", "slo: 50s", "default: 11", "min_confidence: 0.25", "weight: 2.5", "budget: 100000", "shadow: {other: 0.5}", "cold_start: 3s", "log: {sample: 1}"))
	expect("/changed/predict", `{"input":9}`)
	s.declareFields(apply)
	s.declareTraffic(g, apply)
	expect("/over-w/predict", `{"input":8}`)
	expect("/fh/predict", `{"input":8}`)

	for i := range 20 {
		a := g.ask("changed", i, fmt.Sprintf(`,"context":"user %d"`, i%3))
		if status, said := g.tell("changed", `{"query_id":%d,"label":%d}`, *a.QueryID, i); status != 200 {
			t.Fatalf("feedback is answered by %d %+v", status, said)
		}
	}
	if s.server == nil {
		g.awaitPrinted(20, 20, s.log)
	}
	s.teachAll(g, apply)
	expect("/votes/predict", `{"input":7}`)
	expect("/prefers/predict", `{"input":7}`)
	return requests
}

// declareFields declares a model with every field that does not depend on the machine.
func (s *store) declareFields(apply func(parts ...string)) {
	s.t.Helper()
	apply(`
---
kind: Model
name: fields
version: "2026-01.b"
dir: /
inputs:  [{name: image, dtype: float32, shape: [2, -1]}, {name: words, dtype: string, shape: [-1]}]
outputs: [{name: label, dtype: int64, shape: []}, {name: scores, dtype: float64, shape: [3]}]
run: {command: [xebec-testworker, -mode, noop, "an argument, with: punctuation"], env: {LANG: C, EMPTY: "", QUOTED: "\"ü\"\n"}}
replicas: {min: 0, max: 3, initial: 1, idle: 1s, window: 2m, delay: 45s, utilization: 0.6, up: 5, down: 3}
resources: {cpu: 0.01, memory: 1MiB}
expect: [{rate: 40.5, from: "2026-01-01T08:00:00Z", to: "2026-01-01T18:30:00Z"}]
batching: {policy: quantile, max: 64, max_bytes: 1048576, hold: 2ms, objective: 30ms}
retry: false
timeout: 45s
queue: {max: 1000}
cache: off
cost: 2.5
`, function("over-fields", "fields", `slo: 250ms`, `default: {label: 3, scores: [0.25, 0.5, 1]}`))
}

// declareTraffic declares every kind of traffic rule, including one for a watched model.
func (s *store) declareTraffic(g *gateway, apply func(parts ...string)) {
	s.t.Helper()
	two := func(name, mode string) string {
		return number(name, "echo", uncached) + version(number(name, mode, uncached), "2")
	}
	apply(two("s", "noop"), two("h", "noop"), two("r", "noop"), two("k", "echo"),
		function("fs", "s", "slo: 60s"), function("fh", "h", "slo: 60s"), function("fr", "r", "slo: 60s"), function("fk", "k", "slo: 60s"),
		traffic("s", `serving: "1"`, `split: {version: "2", percent: 12.5}`, `labels: {stable: "1", canary: "2"}`),
		traffic("h", `serving: "1"`, `shadow: {version: "2", percent: 40}`),
		traffic("r", `serving: "1"`, `rollout: {version: "2", policy: {name: thompson}, guard: {min_feedback: 100000, max_error_increase: 0.125, max_p99_increase: 900}}`),
		traffic("k", `versions: {specific: ["1"]}`, `transition: resources`),
	)
	g.awaitTraffic("s", "the split is in force", func(t api.TrafficStatus) bool { return len(t.Arms) == 2 })
	g.awaitTraffic("r", "the roll-out has begun", func(t api.TrafficStatus) bool { return t.Rollout != nil })
	g.awaitServing("k@1")
	g.teach("fr", 1, 10, "", itself)
	g.await("the watched model", answers(g, "w", 0, "w@2"))
	apply(traffic("w", `serving: "1"`, `labels: {good: "1"}`), function("over-w", "w@good", "slo: 60s"))
	g.awaitServing("w@1")
}

// teachAll declares a function with each policy and gives feedback to those that learn, with and without contexts.
func (s *store) teachAll(g *gateway, apply func(parts ...string)) {
	t := s.t
	t.Helper()
	apply(number("left", "noop", "cost: 1"), number("good", "echo"), number("worse", "noop"), decimal("real", "echo"), decimal("flat", "noop"),
		function("learns", "left, good", "slo: 60s", "policy: {name: exp3, eta: 0.3}"),
		function("votes", "left, good, worse", "slo: 60s", "policy: {name: exp4, eta: 0.25}"),
		function("mixes", "real, flat", "slo: 60s", "policy: exp4", "loss: {kind: squared, scale: 20}"),
		function("greedy", "left, good", "slo: 60s", "policy: {name: epsilon-greedy}"),
		function("bounds", "left, good", "slo: 60s", "policy: ucb1"),
		function("samples", "left, good", "slo: 60s", "policy: thompson"),
		function("splits", "left, good", "slo: 60s", "policy: split"),
		function("prefers", "good, left", "slo: 60s", "policy: prefer"),
	)
	for _, m := range []string{"left", "good", "worse", "real", "flat"} {
		g.awaitServing(m + "@1")
	}
	contexts := []string{"ann", "bob", "ünï/:%41 \"*\"\n"}
	for _, f := range []string{"learns", "votes", "mixes", "greedy", "bounds", "samples"} {
		g.teach(f, 1, 12, "", itself)
		for i, context := range contexts {
			right := itself
			if i == 1 {
				right = zero
			}
			g.teach(f, 100*i+1, 6+i, `,"context":`+toJSON(t, context), right)
		}
		g.saved(f)
	}
}

// decimal is number for a model of floating-point numbers.
func decimal(name, mode string) string {
	return strings.ReplaceAll(number(name, mode), "int64", "float32")
}

// maxStoresBytes bounds what the stores add to the repository.
const maxStoresBytes = 1 << 20

// The stores in testdata have no paths of the machine that wrote them, and are small.
func TestStoresOfEarlierProgramsAreClean(t *testing.T) {
	var total int64
	err := filepath.WalkDir(storesDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		total += int64(len(content))
		if filepath.Ext(path) == ".md" {
			return err
		}
		if strings.HasSuffix(path, ".gz") {
			content = unpack(t, content)
		}
		for _, word := range []string{"/tmp/", "/home/", "/root/"} {
			if bytes.Contains(content, []byte(word)) {
				t.Errorf("%s has a path below %s", path, word)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > maxStoresBytes {
		t.Errorf("the stores have %d bytes, expected at most %d", total, maxStoresBytes)
	}
}
