package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

const (
	// The targets, in milliseconds, for a scikit-learn model that is forked from a zygote, and for one that a container waits for.
	maxColdP50, maxColdP99 = 100, 250
	maxWarmP50             = 300

	coldModel = "cold" // the function's name too
	// idle is how long a model stays loaded without a query: short, so that it soon sleeps again.
	idle = "200ms"
	// warmups are starts that do not count: the zygote still has to import what it preloads.
	warmups = 2
	// demoModel is the scikit-learn model.
	demoModel = "digits-svm"
)

// preload is what the scikit-learn model imports.
const preload = "[numpy, sklearn.svm, joblib]"

// ColdStart holds the start times of one model.
type ColdStart struct {
	Name string `json:"name"`
	// MaxP50 and MaxP99 are the targets for this model. 0: there is none.
	MaxP50 float64 `json:"max_p50_ms,omitempty"`
	MaxP99 float64 `json:"max_p99_ms,omitempty"`
	// Millis are measured by the client, from the query until its answer, in the order of the queries.
	Millis []float64 `json:"ms"`
	// GatewayMillis are measured by the gateway, from the query that found no replica to the first answer.
	GatewayMillis []float64 `json:"gateway_ms"`
	// StartMillis are the gateway's running mean of the time from a launch until the replica is ready, read after each start.
	StartMillis []float64 `json:"start_ms"`
	// Splits say where the time went, for models whose program notes it.
	Splits []Split `json:"splits,omitempty"`
	// NotMeasured is the reason why the model was not measured.
	NotMeasured string `json:"not_measured,omitempty"`
}

// Split says where the time of one cold start went, in milliseconds.
type Split struct {
	// UntilRuns is from the query until the first line of the model's program: the gateway notices, places and launches; then the fork, or
	// the start of the interpreter.
	UntilRuns float64 `json:"until_runs"`
	// Loads is the program's imports and the loading of its parameters.
	Loads float64 `json:"loads"`
	// UntilAnswer is the rest: the worker connects, registers and evaluates the query, and the answer goes back.
	UntilAnswer float64 `json:"until_answer"`
}

// sleepy is a model whose starts are measured.
type sleepy struct {
	name           string
	starts         int
	maxP50, maxP99 float64 // targets; 0: none
	manifest       string
	body           []byte
	args           []string // of the gateway
	marks          string   // file in which the model's program notes when it began and when it had loaded; may be empty
	// prints means that the model's program prints these times as a line, which a container cannot write to a file.
	prints bool
	// waits means that a process with the model's imports must wait before the model is asked.
	waits bool
	// optional means that a failed start is not an error.
	optional bool
}

// digitFunction is the second half of the manifests of models that take the picture of a digit.
const digitFunction = `
inputs:  [{name: input, dtype: float32, shape: [64]}]
outputs: [{name: output, dtype: int64, shape: []}]
replicas: {min: 0, max: 1, idle: ` + idle + `}
cache: off
---
kind: Function
name: ` + coldModel + `
models: [` + coldModel + `]
slo: 1s
`

func coldManifest(format string, args ...any) string {
	return "kind: Model\nname: " + coldModel + "\nversion: \"1\"\n" + fmt.Sprintf(format, args...) + digitFunction
}

// markedProgram is the demo's program, extended to note when it began and when it had loaded.
const markedProgram = `import time
began = time.time_ns()
import os
import joblib
import xebec

classifier = joblib.load("digits.joblib")
with open(os.environ["MARKS"], "w") as f:
    f.write(f"{began} {time.time_ns()}")
xebec.serve(lambda batch: classifier.predict(batch))
`

// sleepies returns the models of part a. Their files are in the demo's folder, in the repository and in folder.
func sleepies(cfg config, folder string, digit []byte) ([]sleepy, error) {
	svm := filepath.Join(cfg.demo, demoModel)
	marked, marks := filepath.Join(folder, "marked"), filepath.Join(folder, "marks")
	parameters, err := os.ReadFile(filepath.Join(svm, "digits.joblib"))
	if err != nil {
		return nil, fmt.Errorf("%w: `make demo` trains it", err)
	}
	if err := errors.Join(os.Mkdir(marked, 0o755), os.WriteFile(filepath.Join(marked, "digits.joblib"), parameters, 0o644),
		os.WriteFile(filepath.Join(marked, "model.py"), []byte(markedProgram), 0o644)); err != nil {
		return nil, err
	}
	command, err := json.Marshal([]string{cfg.worker, "-mode", "noop"})
	if err != nil {
		return nil, err
	}
	python := func(dir, env, more string) string {
		return coldManifest("dir: %q\nrun: {command: [python, model.py], env: {OMP_NUM_THREADS: \"1\"%s}%s}\n", dir, env, more)
	}
	// A program that tells when writes to a file of ours, which isolation forbids.
	tells := python(marked, fmt.Sprintf(", MARKS: %q", marks), ", isolation: none")
	forked := func(manifest string) string { return "preload: " + preload + "\n" + manifest }
	few := func(n int) int { return max(2, n) }
	return []sleepy{
		{name: "scikit-learn, from a zygote", starts: cfg.starts, maxP50: maxColdP50, maxP99: maxColdP99, manifest: forked(python(svm, "", "")), body: digit},
		{name: "the same without isolation, and its program tells when", starts: few(cfg.starts / 10), manifest: forked(tells), body: digit, marks: marks},
		{name: "scikit-learn, without a zygote", starts: few(cfg.starts / 10), manifest: python(svm, "", ""), body: digit},
		{name: "the same without isolation, and its program tells when", starts: few(cfg.starts / 40), manifest: tells, body: digit, marks: marks},
		{name: "compiled worker", starts: few(cfg.starts / 4), manifest: coldManifest("run: {command: %s}\n", command), body: digit},
	}, nil
}

// digitBody returns a query with the demo's picture, which shows a 0.
func digitBody(cfg config) ([]byte, error) {
	file := filepath.Join(cfg.demo, "digit.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: `make demo` makes it", err)
	}
	var digit struct {
		Label  int       `json:"label"`
		Pixels []float64 `json:"pixels"`
	}
	if err := json.Unmarshal(text, &digit); err != nil || digit.Label != 0 || len(digit.Pixels) != 64 {
		return nil, fmt.Errorf("%s has no picture of a 0 with 64 pixels: `make demo` makes it again (%w)", file, err)
	}
	return json.Marshal(map[string]any{"input": digit.Pixels})
}

func measureColdStarts(ctx context.Context, cfg config, report *Report) error {
	digit, err := digitBody(cfg)
	if err != nil {
		return err
	}
	folder, err := gateway.NewFolder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	models, err := sleepies(cfg, folder, digit)
	if err != nil {
		return err
	}
	return report.measureAll(ctx, cfg, models)
}

// measureAll adds the starts of all models to the report.
func (r *Report) measureAll(ctx context.Context, cfg config, models []sleepy) error {
	for _, m := range models {
		runner.Logf("    %s: %d starts", m.name, m.starts)
		c := &ColdStart{Name: m.name, MaxP50: m.maxP50, MaxP99: m.maxP99}
		if m.optional && cfg.docker == "" {
			c.NotMeasured = "no container engine was given (-docker)"
		} else if err := m.measure(ctx, cfg, c); err != nil {
			if !m.optional || ctx.Err() != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			*c = ColdStart{Name: m.name, NotMeasured: cell(err.Error())}
		}
		r.ColdStarts = append(r.ColdStarts, *c)
		if c.NotMeasured != "" {
			runner.Logf("        not measured: %s", c.NotMeasured)
		} else {
			q := results.Quantiles(c.Millis)
			runner.Logf("        p50 %.1f ms, p90 %.1f ms, the longest %.1f ms", q(0.5), q(0.9), q(1))
		}
	}
	return nil
}

// measure wakes the model repeatedly, in a gateway of its own.
func (m *sleepy) measure(ctx context.Context, cfg config, c *ColdStart) error {
	g, err := gateway.Start(ctx, gateway.Options{Programs: cfg.Programs, Store: true, Args: m.args})
	if err != nil {
		return err
	}
	defer g.Stop()
	if err := g.Apply(ctx, m.manifest); err != nil {
		return err
	}
	a := newAsker(g)
	defer a.close()
	for i := range warmups + m.starts {
		if err := m.asleep(ctx, g); err != nil {
			return err
		}
		q, err := a.function(ctx, coldModel, m.body)
		if err != nil {
			return fmt.Errorf("start %d: %w%s", i+1, err, lastOfModel(ctx, g))
		}
		if i < warmups {
			continue
		}
		c.Millis = append(c.Millis, q.millis())
		now, err := g.Model(ctx, coldModel)
		if err != nil {
			return err
		}
		if now.Capacity == nil || now.Capacity.ColdStarts == nil {
			return fmt.Errorf("start %d: the gateway says nothing of a cold start", i+1)
		}
		c.GatewayMillis = append(c.GatewayMillis, now.Capacity.ColdStarts.LastMS)
		c.StartMillis = append(c.StartMillis, now.Capacity.StartMS)
		if m.marks != "" || m.prints {
			s, err := m.split(ctx, g, q)
			if err != nil {
				return err
			}
			c.Splits = append(c.Splits, s)
		}
	}
	return nil
}

// asleep waits until the model has no replica, and, if it starts from a process that waits, until that waits. The gateway counts such
// processes now and then, so one must be counted for a while.
func (m *sleepy) asleep(ctx context.Context, g *gateway.Gateway) error {
	if err := asleep(ctx, g, coldModel); err != nil || !m.waits {
		return err
	}
	var since time.Time
	return runner.Until(ctx, pollEvery, waitsWithin, "a container waits with the modules of "+coldModel, func(ctx context.Context) (bool, error) {
		now, err := g.Status(ctx)
		switch {
		case err != nil || now.Node == nil || now.Node.Zygotes == 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) >= countedFor, err
	})
}

// asleep waits until a model has no replica and is not about to get one.
func asleep(ctx context.Context, g *gateway.Gateway, model string) error {
	return runner.Until(ctx, pollEvery, asleepWithin, "model "+model+" sleeps", func(ctx context.Context) (bool, error) {
		now, err := g.Model(ctx, model)
		return err == nil && len(now.Replicas) == 0 && (now.Capacity == nil || now.Capacity.Wanted == 0), err
	})
}

// split finds the times that the model's program noted of the start that q caused.
func (m *sleepy) split(ctx context.Context, g *gateway.Gateway, q *asked) (s Split, err error) {
	if m.marks != "" {
		text, err := os.ReadFile(m.marks)
		if err != nil {
			return s, err
		}
		return splitOf(m.marks, string(text), q)
	}
	// The line may come after the answer, through the engine.
	err = runner.Until(ctx, pollEvery, patience, "the model's program prints its times", func(ctx context.Context) (bool, error) {
		now, err := g.Model(ctx, coldModel)
		if err != nil {
			return false, err
		}
		for _, line := range slices.Backward(now.Logs) {
			times, ok := strings.CutPrefix(line.Text, marksLine)
			if ok && line.Stream == "stdout" {
				s, err = splitOf("its output", times, q)
				return err == nil, nil // the times of the start before, as long as these have not come
			}
		}
		return false, nil
	})
	return s, err
}

// splitOf combines the times that the model's program noted with those of the client. Both use this machine's clock.
func splitOf(file, text string, q *asked) (Split, error) {
	var began, loaded int64
	if _, err := fmt.Sscan(text, &began, &loaded); err != nil {
		return Split{}, fmt.Errorf("%s: %q: expected two times: %w", file, text, err)
	}
	sent, answered := q.began.UnixNano(), q.done.UnixNano()
	if began < sent || loaded < began || answered < loaded {
		return Split{}, fmt.Errorf("%s: %d and %d are not between the query, %d, and its answer, %d", file, began, loaded, sent, answered)
	}
	ms := func(from, to int64) float64 { return float64(to-from) / 1e6 }
	return Split{UntilRuns: ms(sent, began), Loads: ms(began, loaded), UntilAnswer: ms(loaded, answered)}, nil
}

// lastOfModel describes a failed start, for the end of an error message.
func lastOfModel(ctx context.Context, g *gateway.Gateway) string {
	now, err := g.Model(ctx, coldModel)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, r := range now.Replicas {
		if r.LastExit != "" {
			fmt.Fprintf(&b, "; replica: %s", r.LastExit)
		}
	}
	for _, line := range slices.Backward(now.Logs) {
		if line.Stream == "stderr" {
			fmt.Fprintf(&b, "; its last line: %s", line.Text)
			break
		}
	}
	return b.String()
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
}
