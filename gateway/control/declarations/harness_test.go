package declarations

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers/containerstest"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker/memory"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The manifests of these tests. A version that may sleep is available at once, without a replica.
const (
	model = `
kind: Model
name: m
version: "1"
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py], env: {A: b}}
replicas: {min: 0, max: 2}
`
	fn = `
---
kind: Function
name: f
models: [m]
slo: 20ms
default: -1
`
	ruleOfM = "kind: Traffic\nname: m\nserving: \"1\""
)

// version is the model's manifest with another version, and other replacements.
func version(v string, more ...string) string {
	return strings.NewReplacer(append([]string{`version: "1"`, `version: "` + v + `"`}, more...)...).Replace(model)
}

func decoded(t *testing.T, text string) *manifest.Set {
	t.Helper()
	set, err := manifest.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.OK
}

// bench is Declarations with the parts that they change, over replicas that never connect. Begin has not been called.
type bench struct {
	*Declarations
	t    *testing.T
	stop func() // ends everything, as the composition does; the end of the test does, too
}

// newBench makes a bench. cfg may have a store.
func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	log, clock := zap.NewNop(), driver.NewClock()
	life, endLife := context.WithCancel(context.Background())
	transport := memory.New(memory.Config{Now: clock.Now})
	var catalog *versions.Catalog
	changed := func(model string) { catalog.Changed(model) }
	cfg.Capacity = capacity.New(capacity.Config{CPU: 4, MemoryBytes: 1 << 30, Now: clock.Now, Life: life, Changed: changed, Log: log})
	cfg.Host = &deployment.Host{
		Clock: clock, Transport: transport, Runtime: containerstest.Idle{}, Capacity: cfg.Capacity, Cache: cache.New(1 << 20), WorkDir: "/", Drain: 10 * time.Second,
		Devices: map[string]*driver.Device{"gpu0": driver.NewDevice()}, Changed: changed, Log: log,
	}
	path := query.New(query.Config{Now: clock.Now, Cache: cfg.Host.Cache, Timers: driver.NewTimers(clock)})
	table := learned.New(learned.Config{Log: log})
	var background, running sync.WaitGroup
	b := &bench{t: t}
	catalog = versions.New(versions.Config{
		Host: cfg.Host, Path: path, Learned: table, Life: life, Background: func(work func()) { background.Go(work) }, Drain: cfg.Host.Drain,
		SourcesRead: func() bool { return b.SourcesRead() }, Unserved: func(id api.ModelID) { b.NoteUnserved(id) }, Log: log,
	})
	cfg.Catalog, cfg.Functions = catalog, functions.New(functions.Config{Path: path, Learned: table, NextKey: cfg.Host.NextKey})
	catalog.Attach(cfg.Functions)
	cfg.Started, cfg.Life, cfg.Log, cfg.Identity = time.Now(), life, cmp.Or(cfg.Log, log), "test"
	cfg.Serving, cfg.ManyModels = func() bool { return true }, func(int) {}
	b.Declarations = New(cfg)
	run, endRun := context.WithCancel(context.Background())
	running.Go(func() { catalog.Run(run) })
	b.stop = sync.OnceFunc(func() {
		endLife()
		catalog.BeginStop()
		release := b.Hold()
		all := catalog.Stop()
		release()
		for _, v := range all {
			if err := v.Close(context.Background(), api.ShuttingDown); err != nil {
				t.Error(err)
			}
		}
		background.Wait()
		endRun()
		running.Wait()
		if err := table.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := transport.Close(); err != nil {
			t.Error(err)
		}
		clock.Close()
		if cfg.Store != nil {
			if err := cfg.Store.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(b.stop)
	return b
}

// begun is a bench that has read its store.
func begun(t *testing.T, cfg Config) *bench {
	t.Helper()
	b := newBench(t, cfg)
	if err := b.Begin(context.Background(), &manifest.Set{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) mustApply(texts ...string) {
	b.t.Helper()
	if err := b.apply(strings.Join(texts, "\n---\n")); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) apply(text string, seen ...api.ObjectRevision) error {
	b.t.Helper()
	_, err := b.Apply(context.Background(), decoded(b.t, text), false, seen...)
	return err
}

// traffic are the rules of m; nil: there are none.
func (b *bench) traffic() *api.TrafficSpec {
	defer b.cfg.Catalog.Unlock()
	if f := b.cfg.Catalog.Lock().Family("m"); f != nil {
		return f.Traffic
	}
	return nil
}

// spec is the declaration of a version of m; nil: there is none.
func (b *bench) spec(version string) *api.ModelSpec {
	defer b.cfg.Catalog.Unlock()
	if v := b.cfg.Catalog.Lock().Version(api.ModelID{Name: "m", Version: version}); v != nil {
		return v.Spec()
	}
	return nil
}

// hasServed says of a version 1 that it has served: its replicas never connect here.
func (b *bench) hasServed(model string) {
	b.t.Helper()
	s := b.cfg.Catalog.Lock()
	defer b.cfg.Catalog.Unlock()
	s.MarkServed(s.Version(api.ModelID{Name: model, Version: "1"}))
}

// until polls a condition until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	late := time.After(time.Minute)
	for !holds() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// faulty is a store with faults.
type faulty struct {
	state.Backend
	mu     sync.Mutex
	commit func() error // called before each commit, which fails if it does; nil: nothing
	away   bool         // it cannot be read
	shared bool
}

// fileStore opens a store in a file.
func fileStore(t *testing.T, path string) *faulty {
	t.Helper()
	store, err := state.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &faulty{Backend: store}
}

// newStore is an empty store.
func newStore(t *testing.T) *faulty { return fileStore(t, filepath.Join(t.TempDir(), "state.db")) }

func (s *faulty) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// fail makes commits fail with the error; nil: they succeed again.
func (s *faulty) fail(err error) { s.set(func() { s.commit = func() error { return err } }) }

func (s *faulty) Shared() bool { return s.shared || s.Backend.Shared() }

func (s *faulty) Changes(ctx context.Context, since uint64) (state.Changes, error) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away {
		return state.Changes{}, errors.New("away")
	}
	return s.Backend.Changes(ctx, since)
}

func (s *faulty) Commit(ctx context.Context, c *state.Commit) (uint64, error) {
	s.mu.Lock()
	before := s.commit
	s.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return 0, err
		}
	}
	return s.Backend.Commit(ctx, c)
}
