package versions

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker/memory"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCatalog makes a Catalog over replicas that are goroutines, and runs it until the test ends.
func newCatalog(t *testing.T) *Catalog {
	t.Helper()
	log, clock := zap.NewNop(), driver.NewClock()
	life, endLife := context.WithCancel(context.Background())
	transport := memory.New(memory.Config{Now: clock.Now})
	var c *Catalog
	changed := func(model string) { c.Changed(model) }
	host := &deployment.Host{
		Clock: clock, Transport: transport, Runtime: workers{transport}, Cache: cache.New(1 << 20), WorkDir: "/", Drain: 10 * time.Second, Changed: changed, Log: log,
		Capacity: capacity.New(capacity.Config{CPU: 4, MemoryBytes: 1 << 30, Now: clock.Now, Life: life, Changed: changed, Log: log}),
	}
	path := query.New(query.Config{Now: clock.Now, Cache: host.Cache, Timers: driver.NewTimers(clock)})
	table := learned.New(learned.Config{Log: log})
	var background, running sync.WaitGroup
	c = New(Config{
		Host: host, Path: path, Learned: table, Life: life, Background: func(work func()) { background.Go(work) }, Drain: host.Drain,
		SourcesRead: func() bool { return true }, Log: log,
	})
	c.Attach(noFunctions{})
	run, endRun := context.WithCancel(context.Background())
	running.Go(func() { c.Run(run) })
	t.Cleanup(func() {
		endLife()
		for _, v := range c.Stop() {
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
	})
	return c
}

// adopt declares a version of m that may sleep.
func (c *Catalog) adopt(t *testing.T, version string) *Version {
	t.Helper()
	set, err := manifest.Decode("test.yaml", []byte("kind: Model\nname: m\nversion: \""+version+"\"\ninputs: [{name: input, dtype: float32, shape: [4]}]\n"+
		"outputs: [{name: output, dtype: int64, shape: []}]\nrun: {command: [python, model.py]}\nreplicas: {min: 0, max: 1, idle: 1h}"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.cfg.Host.New(set.Models[0])
	if err != nil {
		t.Fatal(err)
	}
	s := c.Lock()
	defer c.Unlock()
	s.Adopt(d, Applied)
	s.Settle()
	return s.Version(d.ID())
}

// serves is a condition: a version of m serves.
func (c *Catalog) serves(version string) func() bool {
	return func() bool {
		defer c.Unlock()
		f := c.Lock().Family("m")
		return f != nil && f.Serving == version && f.Versions[version].State == registry.Available
	}
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

type noFunctions struct{}

func (noFunctions) Uses() []Use    { return nil }
func (noFunctions) Publish(*State) {}

// workers is a runtime whose replicas are goroutines that answer 0.
type workers struct{ transport *memory.Transport }

func (w workers) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	return instance{w.transport.Start(l.Env, memory.Model{Predict: func(b *memory.Batch) error {
		for i := range b.Inputs {
			b.Outputs[i] = []api.Value{{Data: binary.LittleEndian.AppendUint64(nil, 0)}}
		}
		return nil
	}})}, nil
}

func (w workers) Close() error { return nil }

type instance struct{ *memory.Worker }

func (i instance) PID() int                { return 0 }
func (i instance) Exited() <-chan struct{} { return i.Ended() }
func (i instance) Exit() containers.Exit   { return containers.Exit{At: time.Now()} }
func (i instance) Signal(term bool) error {
	if term {
		i.Stop()
	} else {
		i.Kill()
	}
	return nil
}

// A version begins to load while the old one sleeps, so it needs no replica; and the old one wakes before the next step. The new
// version gets a replica then, instead of loading for as long as the old one has queries.
func TestTheOldVersionWakesMeanwhile(t *testing.T) {
	c := newCatalog(t)
	one := c.adopt(t, "1")
	until(t, "version 1 to serve, asleep", c.serves("1"))
	s := c.Lock()
	s.SetTraffic(&api.TrafficSpec{Model: "m", Versions: api.VersionPolicy{Specific: []string{"1"}}})
	c.Unlock()
	two := c.adopt(t, "2")
	s = c.Lock()
	f := s.Family("m")
	s.DropTraffic("m")
	s.load(f, two)
	if two.Asked() != 0 {
		t.Error("a version that takes over asleep was given a replica")
	}
	one.Model().Ready.Add(1)
	s.look(f)
	if two.Asked() != 1 {
		t.Error("a version that takes over from an awake one was given no replica")
	}
	c.Unlock()
	until(t, "version 2 to serve", c.serves("2"))
	if two.Ready() == 0 {
		t.Error("it serves without a replica")
	}
	one.Model().Ready.Add(-1)
}
