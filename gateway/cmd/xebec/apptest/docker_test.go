package apptest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Models in containers, on a shared engine. The tests that kill an engine are in dockerfaults_test.go.
func TestContainers(t *testing.T) {
	t.Parallel()
	e := theEngine(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *engine)
	}{
		{"Serve", containersServe},
		{"ReadyMadeImages", readyMadeImages},
		{"Calls", containersCall},
		{"CallsInACycle", containersCallInACycle},
		{"SleepAndWake", containersSleep},
		{"WaitAndWake", containersWait},
		{"RollBetweenProcessAndContainer", rollIntoContainer},
		{"WhatCannotServe", imagesThatCannotServe},
		{"ImageAppears", imageAppears},
		{"ImageMoves", imageMoves},
		{"ImageOfOthers", imageOfOthers},
		{"Limits", containerLimits},
		{"Stays", containerStays},
		{"GatewayKilled", gatewayOfContainersKilled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, e)
		})
	}
}

// A compiled model whose image has nothing else answers. describe, logs and the engine show its container with its
// limits. A container is removed with its model, and a running one with its gateway.
func containersServe(t *testing.T, e *engine) {
	g := e.serve(t, "--config", manifest(t,
		imageModel(t, "m", e.image, "", "limits: {cpu: 0.5, memory: 256MiB, pids: 100}", "replicas: {min: 2}"), function("f", "m", "slo: 60s"),
		imageModel(t, "wordy", e.image, "/unruly"), function("wordy", "wordy", "slo: 60s")))
	m := g.awaitReplicas("m", 2)
	l := g.startLoad("f", 4, 200)
	l.wg.Wait()
	if ends := judge(t, l.stop(), "ok"); ends["ok"] != 200 {
		t.Errorf("the outcomes are %v", ends)
	}
	if a := g.raw("wordy", "hello"); !a.predicted() || a.text() != "hello" {
		t.Errorf("the other model answers %v", a)
	}
	names := e.containers(t, g, "m")
	if len(names) != 2 || !strings.HasPrefix(names[0], "xebec-m-1-") {
		t.Fatalf("the model's containers are %v: expected two, named after it", names)
	}
	for _, name := range names {
		const format = "{{.State.Running}} {{.HostConfig.NanoCpus}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}"
		if got, want := e.docker(t, "inspect", "--format", format, name), fmt.Sprint(true, 500_000_000, 256<<20, 100); got != want {
			t.Errorf("container %s: %s: expected %s", name, got, want)
		}
	}
	// A container without limits has the machine's memory less the gateway's reserve, no swap beside it, and 512 processes.
	g.awaitReplicas("wordy", 1)
	machine := g.itself().Node.Budget.MemoryBytes
	for _, name := range e.containers(t, g, "wordy") {
		const format = "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}}"
		if got, want := e.docker(t, "inspect", "--format", format, name), fmt.Sprint(machine, machine, 512); machine == 0 || got != want {
			t.Errorf("container %s without limits: %s: expected %s", name, got, want)
		}
	}
	text := g.must("describe", "model", "m")
	for _, says := range []string{e.image, "0.5 cores, 256MiB of memory, 100 processes and threads", "ready, 2 of 2 replicas ready", fmt.Sprintf("%d, 0 restarts", m.Replicas[0].PID)} {
		if !strings.Contains(text, says) {
			t.Errorf("describe does not say %q:\n%s", says, text)
		}
	}
	if strings.Contains(text, "Not enforced") {
		t.Errorf("describe says that limits are not enforced:\n%s", text)
	}
	g.awaitLog("wordy", "at /model there are 1 files (<nil>)")
	// A model declared without a directory does not get the gateway's.
	bare := strings.Replace(imageModel(t, "bare", e.image, "/unruly"), "dir: ", "# ", 1)
	if status, body, err := g.applyHTTP(bounded(t), bare); status != 200 {
		t.Errorf("a model without a directory is declared with %d %s (%v)", status, body, err)
	}
	g.awaitReplicas("bare", 1)
	g.awaitLog("bare", "at /model there are 0 files (open /model: no such file or directory)")
	g.must("delete", "function", "f")
	g.must("delete", "model", "m")
	e.awaitContainers(g, "m", 0)
	if left := e.containers(t, g, ""); len(left) != 2 {
		t.Errorf("after the deletion of a model its containers are %v", left)
	}
}

// needImages returns the tag of the images of containers/images, and skips the test without them.
func needImages(t *testing.T) string {
	t.Helper()
	tag := os.Getenv(envImages)
	if tag == "" {
		t.Skipf("%s names no images: containers/images/build.sh builds them, .ci/test.sh runs this with them", envImages)
	}
	return tag
}

// The images of containers/images: a model directory in Python is deployed, sees its files at /model, and computes with
// numpy; a compiled model answers.
func readyMadeImages(t *testing.T, e *engine) {
	tag := needImages(t)
	dir := openDir(t)
	writeFile(t, dir, "xebec.yaml", fmt.Sprintf(`
kind: Model
name: weigh
version: "1"
inputs:  [{name: x, dtype: float32, shape: [3]}]
outputs: [{name: y, dtype: float32, shape: []}]
run: {image: "xebec-python:%s", env: {OMP_NUM_THREADS: "1"}}
limits: {cpu: 1, memory: 512MiB, pids: 200}
`, tag))
	writeFile(t, dir, "weights.txt", "1 2 3\n")
	writeFile(t, dir, "model.py", `
import os
import numpy as np, xebec
weights = np.loadtxt("weights.txt", dtype=np.float32)
print("weights in", os.getcwd(), "for user", os.getuid())
xebec.serve(lambda batch: batch @ weights)
`)
	g := e.serve(t, "--config", manifest(t, imageModel(t, "echo", "xebec-echo:"+tag, ""), function("echo", "echo", "slo: 60s")))
	if a := g.raw("echo", "hello"); !a.predicted() || a.text() != "HELLO" {
		t.Errorf("the compiled model answers %v", a)
	}
	g.must("deploy", dir)
	g.xebec("invoke", "weigh", "--input", "[1,1,2]", "--slo", "60s").wants(t, "invoke", 0, "9", "")
	if a := g.json("/weigh/predict", `{"input_batch":[[1,1,1],[0.5,0,2]]}`, "Xebec-Slo-Ms", patient); len(a.Batch) != 2 || string(a.Batch[0].Output) != "6" || string(a.Batch[1].Output) != "6.5" {
		t.Errorf("a batch is answered by %v", a)
	}
	g.awaitLog("weigh", "weights in /model for user 65534")
	if r := g.model("weigh").Replicas[0]; !strings.HasPrefix(r.Binding, "xebec-python/") || !r.Ring {
		t.Errorf("the replica is %+v: expected the Python binding, with its extension", r)
	}
	g.must("delete", "function", "weigh")
	g.must("delete", "model", "weigh")
	e.awaitContainers(g, "weigh", 0)
}

// A sleeping model has no container. A query wakes it, waits and is answered. After its idle time the container is
// removed. Then the same again.
func containersSleep(t *testing.T, e *engine) {
	g := e.serve(t, "--config", manifest(t,
		imageModel(t, "m", e.image, "", uncached, "replicas: {min: 0, max: 1, idle: 1s}"), function("f", "m", "slo: 1s", "cold_start: 60s")))
	for _, word := range []string{"first", "second"} {
		e.awaitContainers(g, "m", 0)
		if m := g.model("m"); m.State != api.ModelIdle {
			t.Errorf("without a query the model is %s", m.State)
		}
		if a := g.raw("f", word); !a.predicted() || a.text() != word {
			t.Errorf("the query that wakes the model is answered by %v", a)
		}
		g.awaitModel("m", "the model to sleep", func(m api.ModelStatus) bool { return m.State == api.ModelIdle && len(m.Replicas) == 0 })
	}
	e.awaitContainers(g, "m", 0)
	if c := g.model("m").Capacity.ColdStarts; c == nil || c.Count != 2 {
		t.Errorf("the model counts cold starts as %+v: expected 2", c)
	}
}

// Of a sleeping model with preload one container waits that has imported the modules, and describe gateway counts it. It becomes the replica that
// a query wakes. When that sleeps another one waits, and none when the model is gone. The gateway keeps copies of the model's files, which both
// kinds of container must have mounted.
func containersWait(t *testing.T, e *engine) {
	tag := needImages(t)
	dir := openDir(t)
	writeFile(t, dir, "model.py", `
import sys
there = "numpy" in sys.modules
import os, xebec
xebec.serve(lambda batch: [f"{there} {os.environ['KEY']} {len(open('model.py').readlines())}" for _ in batch])
`)
	g := e.serve(t, "--data-dir", newDir(t), "--config", manifest(t, fmt.Sprintf(`
---
kind: Model
name: m
version: "1"
dir: %s
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {image: "xebec-python:%s", env: {KEY: value}}
preload: [numpy]
limits: {memory: 512MiB}
cache: off
replicas: {min: 0, max: 1, idle: 1s}
`, dir, tag), function("f", "m", "slo: 1s", "cold_start: 60s")))
	var last string
	waits := func() { // describe may still count the one before
		g.awaitModel("m", "the model to sleep", func(m api.ModelStatus) bool { return m.State == api.ModelIdle && len(m.Replicas) == 0 })
		g.await("another container that waits after "+last, func(context.Context) (bool, string) {
			out, names := g.must("describe", "gateway"), e.containers(t, g, "m")
			if len(names) != 1 || !strings.HasPrefix(names[0], "xebec-m-1-warm-") || names[0] == last || !strings.Contains(out, "Zygotes:") {
				return false, fmt.Sprint(names, "\n", out)
			}
			last = names[0]
			return true, ""
		})
	}
	for range 2 {
		waits()
		if a := g.raw("f", "x"); !a.predicted() || a.text() != "True value 5" {
			t.Errorf("the query that wakes the model is answered by %v", a)
		}
	}
	waits()
	if c := g.model("m").Capacity.ColdStarts; c == nil || c.Count != 2 {
		t.Errorf("the model counts cold starts as %+v: expected 2", c)
	}
	g.must("delete", "function", "f")
	g.must("delete", "model", "m")
	e.awaitContainers(g, "m", 0)
}

// A version in a container replaces one in a process, and is rolled back to it, under load. No query fails.
func rollIntoContainer(t *testing.T, e *engine) {
	process := testModel("m", nil, uncached)
	contained := version(imageModel(t, "m", e.image, "", uncached), "2")
	g := e.serve(t, "--config", manifest(t, process, traffic("m", `serving: "1"`, "versions: {latest: 1}"), function("f", "m", "slo: 60s")))
	clients := g.startCrowd("f", 4)
	clients.served(30)
	g.must("apply", "-f", manifest(t, contained))
	g.must("promote", "m@2", "--wait")
	g.awaitServing("m@2")
	clients.served(30)
	g.awaitNoProcess("m@1")
	e.awaitContainers(g, "m", 1)
	g.must("rollback", "m", "--wait")
	g.awaitServing("m@1")
	clients.served(30)
	clients.judge(t, "m@1", "m@2", "m@1")
	e.awaitContainers(g, "m", 0)
}
