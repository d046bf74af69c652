package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

// world is the gateway with what surrounds it.
type world struct {
	cfg       config
	folder    string
	redisAddr string // empty: the state is in a file

	mu      sync.RWMutex // guards what a restart replaces
	gateway *gateway.Gateway
	dying   bool // the gateway is being killed
	redis   *server.Process
}

// manifest declares the models. Each is the compiled test worker, which answers what it was sent:
//
//	echo     always has replicas
//	big      gets 600 KiB inputs
//	naps     sleeps after a second without a query
//	trouble  raises, dies, or returns nothing, as the query says
//	both     an ensemble of two models, which learns from feedback
const manifest = `
kind: Model
name: echo
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %[1]s}
replicas: {min: 1, max: 2}
---
kind: Model
name: big
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %[1]s}
cache: off
---
kind: Model
name: naps
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %[1]s}
replicas: {min: 0, max: 1, idle: 1s}
---
kind: Model
name: trouble
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %[1]s}
---
kind: Function
name: echo
models: [echo]
slo: 2s
---
kind: Function
name: big
models: [big]
slo: 5s
---
kind: Function
name: naps
models: [naps]
slo: 2s
cold_start: 5s
---
kind: Function
name: trouble
models: [trouble]
slo: 1s
---
kind: Function
name: both
models: [echo, big]
policy: exp4
slo: 2s
`

// rolling is a model that is deployed again and again.
const rolling = `
kind: Model
name: rolling
version: "%[2]d"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %[1]s}
---
kind: Function
name: rolling
models: [rolling]
slo: 2s
`

func newWorld(cfg config) (*world, error) {
	folder, err := gateway.NewFolder()
	if err != nil {
		return nil, err
	}
	w := &world{cfg: cfg, folder: folder}
	if cfg.redis != "" {
		if w.redisAddr, err = server.FreeAddr(); err != nil {
			os.RemoveAll(folder)
			return nil, err
		}
	}
	return w, nil
}

func (w *world) close() {
	if w.gateway != nil {
		w.gateway.Stop()
	}
	if w.redis != nil {
		w.redis.Stop()
	}
	os.RemoveAll(w.folder)
}

func (w *world) storeName() string {
	if w.redisAddr != "" {
		return "Redis"
	}
	return "a file"
}

// command is the workers' command in a manifest.
func (w *world) command() string {
	words, err := json.Marshal([]string{w.cfg.worker, "-mode", "markers", "-feedback"})
	if err != nil {
		panic(err) // cannot fail: they are strings
	}
	return string(words)
}

func (w *world) rollingManifest(version int) string {
	return fmt.Sprintf(rolling, w.command(), version)
}

func (w *world) start(ctx context.Context) error {
	if w.redisAddr != "" {
		if err := w.startRedis(ctx); err != nil {
			return err
		}
	}
	return w.startGateway(ctx)
}

func (w *world) startGateway(ctx context.Context) error {
	o := gateway.Options{
		Programs: w.cfg.Programs, Folder: w.folder, Store: true, Configs: []string{"models.yaml"},
		Files: map[string]string{"models.yaml": fmt.Sprintf(manifest, w.command())},
		Args:  []string{"--drain-timeout", "2s", "--cache", "8MiB", "--contexts", "1000", "--feedback-window", "10000"},
	}
	if w.redisAddr != "" {
		o.Args = append(o.Args, "--store", "redis://"+w.redisAddr)
	}
	g, err := gateway.Start(ctx, o)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateway, w.dying = g, false
	return nil
}

// killed reports whether this gateway was killed, or is being killed.
func (w *world) killed(g *gateway.Gateway) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.dying || w.gateway != g
}

// killGateway kills the gateway with SIGKILL and starts it again with the same state.
func (w *world) killGateway(ctx context.Context) error {
	w.mu.Lock()
	w.dying = true
	g := w.gateway
	w.mu.Unlock()
	err := g.Kill()
	return errors.Join(err, w.startGateway(ctx))
}

func (w *world) startRedis(ctx context.Context) error {
	host, port, err := net.SplitHostPort(w.redisAddr)
	if err != nil {
		return err
	}
	p, err := server.Start(ctx, server.Options{
		Name: "redis-server", Program: w.cfg.redis,
		Args:  []string{"--bind", host, "--port", port, "--dir", w.folder, "--appendonly", "yes", "--save", "", "--daemonize", "no"},
		Ready: func() error { return dialable(w.redisAddr) },
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis = p
	return nil
}

// now returns the gateway of this moment. It may have been killed when the caller uses it.
func (w *world) now() *gateway.Gateway {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.gateway
}

// operate deploys a new version of one model every few seconds, deletes the last but one, and reads what dashboards read. While the store is away
// no change is possible: what could not be deleted is deleted in the next rounds.
func (w *world) operate(t *tally) player {
	return func(ctx context.Context) {
		var unwanted []int
		for version := 1; ; version++ {
			g := w.now()
			t.operation("deploy", g.Apply(ctx, w.rollingManifest(version)))
			if old := version - 2; old > 0 {
				unwanted = append(unwanted, old)
			}
			unwanted = slices.DeleteFunc(unwanted, func(old int) bool {
				err := g.Ask(ctx, "DELETE", fmt.Sprintf("/v1/models/rolling?version=%d", old), "", "", nil)
				t.operation("delete", err)
				return err == nil || strings.Contains(err.Error(), "status 404") // it was not deployed
			})
			_, err := g.Metrics(ctx)
			t.operation("scrape", err)
			_, err = g.Status(ctx)
			t.operation("describe", err)
			if runner.Sleep(ctx, 3*time.Second) != nil {
				return
			}
		}
	}
}

// kill ends processes in turn: replicas most often, then the reaper, then the store.
func (w *world) kill(t *tally) player {
	return func(ctx context.Context) {
		random := rand.New(rand.NewPCG(w.cfg.seed, 1))
		for turn := 1; runner.Sleep(ctx, 2*time.Second+time.Duration(random.IntN(2000))*time.Millisecond) == nil; turn++ {
			switch {
			case turn%10 == 5:
				t.operation("kill of the reaper", w.killReaper())
			case turn%10 == 9 && w.redis != nil:
				t.operation("kill of Redis", w.killRedis(ctx))
			default:
				t.operation("kill of a replica", w.killReplica(random))
			}
		}
	}
}

func (w *world) killReplica(random *rand.Rand) error {
	workers, err := descendants(w.now().PID(), filepath.Base(w.cfg.worker))
	if err != nil || len(workers) == 0 {
		return err
	}
	return signal(workers[random.IntN(len(workers))], syscall.SIGKILL)
}

// killReaper kills the gateway's child that starts the workers.
func (w *world) killReaper() error {
	reapers, err := children(w.now().PID())
	if err != nil || len(reapers) == 0 {
		return err
	}
	return signal(reapers[0], syscall.SIGKILL)
}

func (w *world) killRedis(ctx context.Context) error {
	w.mu.Lock()
	err := signal(w.redis.PID(), syscall.SIGKILL)
	w.redis.Stop()
	w.mu.Unlock()
	return errors.Join(err, w.startRedis(ctx))
}

// signal ignores processes that have ended meanwhile.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
