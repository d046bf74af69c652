package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// Two functions of one model and one worker: the log is all that differs.
const loggingManifest = `kind: Model
name: noop
version: "1"
inputs:  [{name: input, dtype: float32, shape: [-1]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: %s}
cache: off
---
kind: Function
name: plain
models: [noop]
slo: 5s
---
kind: Function
name: logged
models: [noop]
slo: 5s
log: {sample: 1}
`

// minLoggedRatio is the target: a log of every query costs at most a tenth.
const minLoggedRatio = 0.9

// Logged is a kind of query, asked with its log and without.
type Logged struct {
	Name  string       `json:"name"`
	Pairs []LoggedPair `json:"pairs"`
	// LogBytes is by how much the log had grown in the end.
	LogBytes int64 `json:"log_bytes"`
}

// LoggedPair is two runs, one after the other; which one is first alternates.
type LoggedPair struct {
	PlainRPS  float64 `json:"plain_rps"`
	LoggedRPS float64 `json:"logged_rps"`
	Failed    uint64  `json:"failed"`
}

func (p LoggedPair) ratio() float64 { return p.LoggedRPS / p.PlainRPS }

var loggedBodies = []struct {
	name, contentType string
	body              []byte
}{
	{"40 B JSON", jsonType, []byte(`{"input": [0.5, 1.25, -3.75, 100, 7.50]}`)},
	{"3 KiB binary", rawType, make([]byte, 3<<10)},
}

const loggedConnections = 64

func measureLogging(ctx context.Context, cfg config, report *Report) error {
	folder, err := gateway.NewFolder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	command, err := json.Marshal([]string{cfg.worker, "-mode", "noop"})
	if err != nil {
		return err
	}
	file, logs := filepath.Join(folder, "noop.yaml"), filepath.Join(folder, "log")
	if err := os.WriteFile(file, fmt.Appendf(nil, loggingManifest, command), 0o644); err != nil {
		return err
	}
	g, err := gateway.Start(ctx, cfg.programs(), folder, "--config", file, "--inference-log", logs)
	if err != nil {
		return err
	}
	defer g.Stop()
	for _, b := range loggedBodies {
		l := Logged{Name: b.name}
		before := sizeOf(logs)
		run := func(function string) (float64, uint64, error) {
			r, err := loadgen.Run(ctx, loadgen.Options{
				Addr: g.Addr, Connections: loggedConnections, Warmup: cfg.window / 5, Duration: cfg.window,
				Requests: []loadgen.Request{{Wire: loadgen.Render(g.Addr, "/"+function+"/predict", b.contentType, b.body), Contains: []byte(`"output":0`)}},
			})
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w%s", function, err, g.LastWords())
			}
			return r.RPS, r.Failed(), nil
		}
		for i := range cfg.rounds {
			p := LoggedPair{}
			order := []string{"plain", "logged"}
			if i%2 == 1 {
				order[0], order[1] = order[1], order[0]
			}
			for _, function := range order {
				rps, failed, err := run(function)
				if err != nil {
					return err
				}
				p.Failed += failed
				if function == "plain" {
					p.PlainRPS = rps
				} else {
					p.LoggedRPS = rps
				}
			}
			l.Pairs = append(l.Pairs, p)
			logf("    %-12s pair %d: %7.0f → %7.0f/s (%.2f ×)", b.name, i+1, p.PlainRPS, p.LoggedRPS, p.ratio())
		}
		if l.LogBytes = growth(ctx, logs, before); l.LogBytes == 0 {
			return fmt.Errorf("%s: nothing was written to the inference log in %s", b.name, logs)
		}
		report.Logged = append(report.Logged, l)
	}
	return nil
}

// growth is by how much a folder has grown; what was logged last is written after moments.
func growth(ctx context.Context, dir string, before int64) int64 {
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		if grown := sizeOf(dir) - before; grown > 0 {
			return grown
		}
		select {
		case <-look.C:
		case <-deadline.C:
			return 0
		case <-ctx.Done():
			return 0
		}
	}
}

// sizeOf is the sum of the sizes of the files below a folder; 0 when there is none.
func sizeOf(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // what cannot be read, or has just been rotated away, is not counted
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}
