package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/machine"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// The names of the models, and of their functions.
const stepModel, wholeModel = "step", "whole"

// maxLineBytes bounds a line of an answer: a whole request's is the longest.
const maxLineBytes = 64 << 10

// wholeHold is how long a batch of whole requests waits that is not full. Otherwise, after a batch that all callers were in, the first to come back
// would be a batch of their own.
const wholeHold = 20 * time.Millisecond

// manifests declare the toy twice.
func manifests(cfg config, places int) string {
	model := func(name, more string) string {
		return fmt.Sprintf(`kind: Model
name: %s
version: "1"
dir: %q
inputs:  [{name: input, dtype: string, shape: []}]
outputs: [{name: output, dtype: string, shape: []}]
run: {command: [python, model.py], env: {BATCHING: %s, PLACES: "%d"}}
replicas: {min: 1, max: 1}
cache: off
%s
---
kind: Function
name: %s
models: [%s]
slo: 60s
---
`, name, cfg.model, name, places, more, name, name)
	}
	return model(stepModel, "stream: true") + model(wholeModel, fmt.Sprintf("batching: {policy: fixed, max: %d, hold: %v}\ntimeout: 60s", places, wholeHold))
}

// Setting is what was measured with one number of places.
type Setting struct {
	Places int    `json:"places"`
	Ideal  Pair   `json:"ideal"`
	Pairs  []Pair `json:"pairs"`
}

// Pair is a run of each kind.
type Pair struct {
	Step  Run `json:"step"`
	Whole Run `json:"whole"`
}

func measure(ctx context.Context, cfg config, places int, lengths []int) (*Setting, error) {
	g, err := gateway.Start(ctx, gateway.Options{Programs: cfg.Programs, Files: map[string]string{"step.yaml": manifests(cfg, places)}, Configs: []string{"step.yaml"}})
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	s := &Setting{Places: places, Ideal: Pair{idealStep(lengths, cfg.callers, places), idealWhole(lengths, cfg.callers, places)}}
	// The gateway learns how long batches take, and the connections are opened, before anything counts.
	for _, model := range []string{stepModel, wholeModel} {
		if _, err := play(ctx, g.Addr, model, cfg.callers, lengths[:min(len(lengths), 2*cfg.callers)]); err != nil {
			return nil, fmt.Errorf("%s, before the measurement: %w%s", model, err, g.LastWords())
		}
	}
	for i := range cfg.pairs {
		var p Pair
		for _, model := range runner.Alternate(i, stepModel, wholeModel) {
			run, err := played(ctx, g, model, cfg.callers, lengths)
			if err != nil {
				return nil, fmt.Errorf("%s, pair %d: %w%s", model, i+1, err, g.LastWords())
			}
			if model == stepModel {
				p.Step = run
			} else {
				p.Whole = run
			}
		}
		s.Pairs = append(s.Pairs, p)
		runner.Logf("    pair %d of %d: %.1f requests/s in steps, %.1f whole: %.2f×", i+1, cfg.pairs, p.Step.RequestsPerS, p.Whole.RequestsPerS, p.Step.RequestsPerS/p.Whole.RequestsPerS)
	}
	return s, nil
}

// played is a run with its CPU time.
func played(ctx context.Context, g *gateway.Gateway, model string, callers int, lengths []int) (Run, error) {
	before, err := cpuTimes(ctx, g, model)
	if err != nil {
		return Run{}, err
	}
	run, err := play(ctx, g.Addr, model, callers, lengths)
	if err != nil {
		return Run{}, err
	}
	after, err := cpuTimes(ctx, g, model)
	_, outputs, _ := summary(lengths)
	each := func(used time.Duration) float64 { return used.Seconds() * 1e6 / float64(outputs) }
	run.GatewayMicros, run.ReplicaMicros = each(after.gateway-before.gateway), each(after.replica-before.replica)
	return run, err
}

type cpuTime struct{ gateway, replica time.Duration }

func cpuTimes(ctx context.Context, g *gateway.Gateway, model string) (t cpuTime, err error) {
	m, err := g.Model(ctx, model)
	if err != nil {
		return t, err
	}
	if len(m.Replicas) != 1 {
		return t, fmt.Errorf("model %s has %d replicas, expected one", model, len(m.Replicas))
	}
	if t.replica, err = machine.CPUTime(m.Replicas[0].PID); err != nil {
		return t, err
	}
	t.gateway, err = g.CPU()
	return t, err
}

// play is a closed loop of callers that take the sequences in order. It ends with the last answer, or with the first wrong one.
func play(ctx context.Context, addr, model string, callers int, lengths []int) (Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	all := make([]timed, len(lengths))
	var next atomic.Int64
	var done sync.WaitGroup
	began := time.Now()
	for range callers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(lengths) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				var err error
				if all[i], err = ask(ctx, client, "http://"+addr+"/"+model+"/predict", model == stepModel, i, lengths[i]); err != nil {
					cancel(fmt.Errorf("sequence %d of %d outputs: %w", i, lengths[i], err))
				}
			}
		})
	}
	done.Wait()
	took := time.Since(began)
	_, outputs, _ := summary(lengths)
	return summed(took, all, outputs), context.Cause(ctx)
}

// ask asks for one sequence and checks each of its outputs.
func ask(ctx context.Context, client *http.Client, url string, stream bool, id, length int) (t timed, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"input":"%d %d"}`, id, length)))
	if err != nil {
		return t, err
	}
	req.Header.Set("Content-Type", loadgen.JSON)
	if stream {
		req.Header.Set("Accept", "application/jsonl")
	}
	began := time.Now()
	answer, err := client.Do(req)
	if err != nil {
		return t, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000)) // only for the message
		return t, fmt.Errorf("%s: %s", answer.Status, text)
	}
	if stream {
		t.first, err = readStream(answer.Body, began, id, length)
	} else {
		err = readWhole(answer.Body, id, length)
	}
	t.last = time.Since(began)
	if !stream {
		t.first = t.last
	}
	return t, err
}

// readStream reads a line for each output, and one that says that they were all.
func readStream(body io.Reader, began time.Time, id, length int) (first time.Duration, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLineBytes)
	n := 0
	for ; lines.Scan(); n++ {
		if n == 0 {
			first = time.Since(began)
		}
		want := fmt.Sprintf(`{"output":"%d.%d"}`, id, n)
		if n == length {
			want = fmt.Sprintf(`"outputs":%d,`, length)
			if !bytes.HasPrefix(lines.Bytes(), []byte(`{"end":true,`)) || !bytes.Contains(lines.Bytes(), []byte(want)) {
				return first, fmt.Errorf("the stream ends with %.300q, expected the end of %d outputs", lines.Bytes(), length)
			}
			continue
		}
		if n > length || lines.Text() != want {
			return first, fmt.Errorf("line %d is %.300q, expected %s", n, lines.Bytes(), want)
		}
	}
	if err := lines.Err(); err != nil {
		return first, err
	}
	if n != length+1 {
		return first, fmt.Errorf("the stream breaks off after %d lines", n)
	}
	return first, nil
}

func readWhole(body io.Reader, id, length int) error {
	text, err := io.ReadAll(io.LimitReader(body, maxLineBytes))
	if err != nil {
		return err
	}
	var answer struct {
		Output  string `json:"output"`
		Default bool   `json:"default"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%w: %.300q", err, text)
	}
	outputs := make([]string, length)
	for k := range outputs {
		outputs[k] = fmt.Sprintf("%d.%d", id, k)
	}
	if answer.Default || answer.Output != strings.Join(outputs, " ") {
		return errors.New("the answer is not the sequence: " + string(text[:min(len(text), 300)]))
	}
	return nil
}
