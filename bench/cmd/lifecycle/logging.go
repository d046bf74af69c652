package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// loggingManifest declares two functions of one model and one worker, which differ only in the log.
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

// minLoggedRatio is the target: logging every query costs at most a tenth of the throughput.
const minLoggedRatio = 0.9

// Logged is one kind of query, measured with the log and without.
type Logged struct {
	Name  string       `json:"name"`
	Pairs []LoggedPair `json:"pairs"`
	// LogBytes is the growth of the log.
	LogBytes int64 `json:"log_bytes"`
}

// LoggedPair is two runs, one after the other. The order alternates.
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
	{"40 B JSON", loadgen.JSON, []byte(`{"input": [0.5, 1.25, -3.75, 100, 7.50]}`)},
	{"3 KiB binary", loadgen.Binary, make([]byte, 3<<10)},
}

const (
	loggedConnections = 64
	logPoll           = 100 * time.Millisecond
	logWithin         = 10 * time.Second
)

func measureLogging(ctx context.Context, cfg config, report *Report) error {
	command, err := json.Marshal([]string{cfg.worker, "-mode", "noop"})
	if err != nil {
		return err
	}
	folder, err := gateway.NewFolder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	logs := filepath.Join(folder, "log")
	g, err := gateway.Start(ctx, gateway.Options{
		Programs: cfg.Programs, Folder: folder, Store: true, Files: map[string]string{"noop.yaml": fmt.Sprintf(loggingManifest, command)}, Configs: []string{"noop.yaml"},
		Args: []string{"--inference-log", logs},
	})
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
			for _, function := range runner.Alternate(i, "plain", "logged") {
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
			runner.Logf("    %-12s pair %d: %7.0f → %7.0f/s (%.2f ×)", b.name, i+1, p.PlainRPS, p.LoggedRPS, p.ratio())
		}
		// The last entries are written a moment later.
		if err := runner.Until(ctx, logPoll, logWithin, "the inference log in "+logs+" grows", func(context.Context) (bool, error) {
			l.LogBytes = sizeOf(logs) - before
			return l.LogBytes > 0, nil
		}); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		report.Logged = append(report.Logged, l)
	}
	return nil
}

// sizeOf returns the sum of the sizes of the files below a folder, or 0 if it does not exist.
func sizeOf(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // do not count files that cannot be read or were just rotated away
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}
