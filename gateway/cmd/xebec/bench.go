package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/foreground"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/server"
)

const (
	// benchDrain is how long a bench waits for what is not answered when it ends.
	benchDrain = 2 * time.Second
	// benchPoll is how often a bench looks at its model.
	benchPoll = 20 * time.Millisecond
	// triedAgain is when a model that has ended is started again that is run once: long after its end was seen.
	triedAgain = 10 * time.Second
)

// bench is a gateway in this process that serves one model directory to its author. The model runs in the directory itself, as a child of
// this process.
type bench struct {
	c       *cli
	dir     string
	gateway *server.Server
	runtime *foreground.Runtime
	// environments builds what directories ask for; nil: the model runs with the interpreter as it is.
	environments io.Closer
	set          *manifest.Set
}

// benchOptions are the flags that dev and try share, and how they differ.
type benchOptions struct {
	listen string // server.NoPort: none
	python string
	asItIs bool // without an environment
	once   bool // a process that ends is not waited for
	stdout io.Writer
}

// newBench starts a gateway without a model.
func (c *cli) newBench(ctx context.Context, dir string, o benchOptions) (*bench, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	log, err := zap.Config{
		Level: zap.NewAtomicLevelAt(zap.FatalLevel), Encoding: "console", EncoderConfig: zap.NewDevelopmentEncoderConfig(), OutputPaths: []string{"stderr"},
	}.Build()
	if err != nil {
		return nil, err
	}
	http.SilenceHertz()
	b := &bench{c: c, dir: dir}
	cfg := foreground.Config{Stdin: file(c.in), Stdout: file(o.stdout), Stderr: file(c.err), Environ: os.Environ(), Once: o.once, Say: b.say}
	if !o.asItIs {
		environments, err := server.Environments(o.python)
		if err != nil {
			return nil, err
		}
		b.environments = environments
		cfg.Python = func(ctx context.Context, l containers.Launch) (string, error) {
			l.Stderr = installing{b}
			return environments.Python(ctx, l)
		}
	}
	b.runtime = foreground.New(cfg)
	again := time.Millisecond
	if o.once {
		again = triedAgain
	}
	b.gateway = server.New(server.Config{
		Version: buildVersion().Version, Listen: o.listen, Admin: server.NoPort, Python: o.python, Logger: log, Runtime: b.runtime, LiveModels: true, DrainTimeout: benchDrain,
		Backoff: containers.Backoff{First: again, Max: again},
	})
	if err := b.gateway.Start(ctx); err != nil {
		return nil, errors.Join(err, b.runtime.Close(), b.closeEnvironments())
	}
	return b, nil
}

func (b *bench) closeEnvironments() error {
	if b.environments == nil {
		return nil
	}
	return b.environments.Close()
}

// installing shows the author what the installer of an environment says. Its errors are in that of the build.
type installing struct{ *bench }

func (i installing) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if !strings.HasPrefix(strings.ToLower(strings.TrimPrefix(text, containers.EnvironmentPrefix)), "error") {
		i.say("%s", text)
	}
	return len(line), nil
}

// file is the file behind a stream, nil if there is none.
func file(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.c.err, "xebec: %s\n", b.c.cleanLines(fmt.Sprintf(format, args...)))
}

// close ends the model and the gateway.
func (b *bench) close() error {
	b.runtime.Closing()
	ctx, cancel := context.WithTimeout(context.Background(), benchDrain)
	defer cancel()
	err := b.gateway.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // a model in a debugger does not answer
		err = nil
	}
	return errors.Join(err, b.closeEnvironments())
}

// load reads the directory's declaration and makes it fit for its author.
func (b *bench) load() (*manifest.Set, error) {
	set, err := manifest.LoadModelDir(b.dir)
	if err != nil {
		return nil, err
	}
	return loosened(set)
}

// loosened is a declaration for an author: of the model, and of the functions that need nothing else. Its process runs as it is, on this
// machine, once. It may stop in a debugger for as long as a query may take at most. Nothing is cached, and no default hides an error.
func loosened(set *manifest.Set) (*manifest.Set, error) {
	m := set.Models[0]
	if len(m.Run.Command) == 0 {
		return nil, fmt.Errorf("model %s runs in the image %s: expected run.command too, which runs it on this machine; or deploy it", m.Name, m.Run.Image)
	}
	m.Run.Image, m.Run.Isolation, m.Run.Network = "", api.IsolationNone, ""
	m.Replicas = api.ReplicaBounds{Min: 1, Max: 1}
	m.Resources, m.Limits, m.Device, m.Expect = api.ResourceSpec{}, api.LimitSpec{}, "", nil
	m.Warmup, m.Validation = nil, nil
	m.Cache, m.Timeout, m.StartTimeout = api.CacheOff, api.MaxTimeout, api.MaxTimeout
	if m.Stream {
		m.StreamIdle = api.MaxTimeout
	}
	once := false
	m.Retry = &once
	loose := &manifest.Set{Models: []api.ModelSpec{m.WithDefaults()}}
	for _, f := range set.Functions {
		if len(f.Models) != 1 {
			continue
		}
		if id, err := api.ParseModelRef(f.Models[0]); err == nil && id.Name == m.Name {
			loose.Functions = append(loose.Functions, f)
		}
	}
	if len(loose.Functions) == 0 {
		loose.Functions = []api.FunctionSpec{{Name: m.Name, Models: []string{m.Name}}}
	}
	for i := range loose.Functions {
		f := &loose.Functions[i]
		f.SLO, f.ColdStart, f.Default, f.MinConfidence, f.Shadow = api.MaxSLO, api.MaxColdStart, nil, 0, nil
		*f = f.WithDefaults()
	}
	return loose, nil
}

// declare puts a declaration in the place of the present one.
func (b *bench) declare(ctx context.Context, set *manifest.Set) error {
	if b.set != nil {
		for _, f := range b.set.Functions {
			if _, err := b.gateway.Delete(ctx, api.KindFunction, api.ModelID{Name: f.Name}); err != nil {
				return err
			}
		}
		if _, err := b.gateway.Delete(ctx, api.KindModel, api.ModelID{Name: b.set.Models[0].Name}); err != nil {
			return err
		}
		b.set = nil
	}
	if _, err := b.gateway.Apply(ctx, set, false); err != nil {
		return err
	}
	b.set = set
	return nil
}

// function is the name of the function that requests go to: that of the model, if there is one.
func (b *bench) function() string {
	name := b.set.Models[0].Name
	if slices.ContainsFunc(b.set.Functions, func(f api.FunctionSpec) bool { return f.Name == name }) {
		return name
	}
	return b.set.Functions[0].Name
}

// replica is the model's replica as it is now, nil if there is none.
func (b *bench) replica(ctx context.Context) (*api.ReplicaStatus, error) {
	models, err := b.gateway.Models(ctx, b.set.Models[0].Name)
	if err != nil || len(models) == 0 || len(models[0].Replicas) == 0 {
		return nil, err
	}
	return &models[0].Replicas[0], nil
}
