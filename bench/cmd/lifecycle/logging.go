package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// minLoggedRatio is the target: logging every query costs at most a twentieth of the throughput.
const minLoggedRatio = 0.95

// Logged is one kind of query, measured with the log and without.
type Logged struct {
	Name  string       `json:"name"`
	Pairs []LoggedPair `json:"pairs"`
	// LogBytes is the growth of the log.
	LogBytes int64 `json:"log_bytes"`
}

// LoggedPair is two runs, one after the other, and a third beside a bare writer. The order rotates.
type LoggedPair struct {
	PlainRPS  float64 `json:"plain_rps"`
	LoggedRPS float64 `json:"logged_rps"`
	// FloorRPS is the throughput without the log beside a program that only writes as many bytes a second to files as the
	// log had to record. 0: not measured.
	FloorRPS float64 `json:"floor_rps,omitempty"`
	Failed   uint64  `json:"failed"`
}

func (p LoggedPair) ratio() float64      { return p.LoggedRPS / p.PlainRPS }
func (p LoggedPair) floorRatio() float64 { return p.FloorRPS / p.PlainRPS }

// loggedBody is one kind of query. floor asks for runs beside a bare writer.
type loggedBody struct {
	name, contentType string
	bodies            [][]byte
	floor             bool
}

func loggedBodies() []loggedBody {
	return []loggedBody{
		{"40 B JSON", loadgen.JSON, [][]byte{[]byte(`{"input": [0.5, 1.25, -3.75, 100, 7.50]}`)}, false},
		{"3 KiB binary", loadgen.Binary, [][]byte{make([]byte, largeBody)}, false},
		{"3 KiB of noise", loadgen.Binary, noise(), true},
	}
}

// noise returns different bodies that no compression shrinks. As connections send them in turn, none comes twice within a block of the log.
func noise() [][]byte {
	random := rand.NewChaCha8([32]byte{})
	all := make([][]byte, noiseBodies)
	for i := range all {
		all[i] = make([]byte, largeBody)
		_, _ = random.Read(all[i]) // never fails
	}
	return all
}

const (
	largeBody         = 3 << 10
	noiseBodies       = 16 * loggedConnections
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
	for _, b := range loggedBodies() {
		l := Logged{Name: b.name}
		before := sizeOf(logs)
		run := func(function string) (float64, uint64, error) {
			opts := loadgen.Options{Addr: g.Addr, Connections: loggedConnections, Warmup: cfg.window / 5, Duration: cfg.window}
			for _, body := range b.bodies {
				opts.Requests = append(opts.Requests, loadgen.Request{Wire: loadgen.Render(g.Addr, "/"+function+"/predict", b.contentType, body), Contains: []byte(`"output":0`)})
			}
			r, err := loadgen.Run(ctx, opts)
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w%s", function, err, g.LastWords())
			}
			return r.RPS, r.Failed(), nil
		}
		runs := []string{"plain", "logged"}
		if b.floor {
			runs = append(runs, "floor")
		}
		rate := 0.0 // bytes a second that the last logged run recorded
		for i := range cfg.rounds {
			p := LoggedPair{}
			for _, what := range runner.Rotate(i, runs...) {
				var failed uint64
				switch what {
				case "plain":
					p.PlainRPS, failed, err = run("plain")
				case "logged":
					p.LoggedRPS, failed, err = run("logged")
					rate = p.LoggedRPS * float64(len(b.bodies[0]))
				default: // not the first of the first round: the rate is known
					p.FloorRPS, failed, err = beside(ctx, filepath.Join(folder, "floor"), rate, func() (float64, uint64, error) { return run("plain") })
				}
				if err != nil {
					return err
				}
				p.Failed += failed
			}
			l.Pairs = append(l.Pairs, p)
			runner.Logf("    %-14s pair %d: %7.0f → %7.0f/s (%.2f ×)", b.name, i+1, p.PlainRPS, p.LoggedRPS, p.ratio())
			if b.floor {
				runner.Logf("    %-14s beside a bare writer: %7.0f/s (%.2f ×)", "", p.FloorRPS, p.floorRatio())
			}
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
