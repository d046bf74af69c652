package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/docker"
	"github.com/xebec-serving/xebec/containers/process"
	"github.com/xebec-serving/xebec/worker/local"
	"go.uber.org/zap"
)

// runtimes sends a launch to where it runs: with an image to the container engine, else to the processes of this host.
type runtimes struct {
	processes *process.Runtime
	images    *docker.Runtime
}

// newRuntimes makes both. Neither starts anything before it is needed; that an engine is there shows when a container is launched.
func (s *Server) newRuntimes() (*runtimes, error) {
	processes, err := process.New()
	if err != nil {
		return nil, err
	}
	if err := processes.Quiet(); err != nil {
		s.log.Warn("replicas that are loaded while others serve have the same priority as these", zap.Error(err))
	}
	owner, err := s.owner()
	if err != nil {
		return nil, errors.Join(err, processes.Close())
	}
	images, err := docker.New(docker.Config{Host: s.cfg.Docker, Owner: owner, Logger: s.log})
	if err != nil {
		return nil, errors.Join(err, processes.Close())
	}
	return &runtimes{processes, images}, nil
}

// ownerFile in the data directory has the name that this gateway's containers are labelled with.
const ownerFile = "gateway.id"

// owner is that name: the same after a restart, where there is a data directory to keep it in.
func (s *Server) owner() (string, error) {
	fresh := rand.Text()
	if s.cfg.DataDir == "" {
		return fresh, nil
	}
	file := filepath.Join(s.cfg.DataDir, ownerFile)
	switch known, err := os.ReadFile(file); {
	case err == nil && len(known) > 0 && len(known) <= maxOwnerBytes:
		return string(bytes.TrimSpace(known)), nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("--data-dir %s: read the name of this gateway's containers: %w", s.cfg.DataDir, err)
	}
	if err := os.WriteFile(file, []byte(fresh+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("--data-dir %s: keep the name of this gateway's containers: %w: name a directory that can be written to", s.cfg.DataDir, err)
	}
	return fresh, nil
}

// maxOwnerBytes is what a label may reasonably have; a file with more was written by somebody else.
const maxOwnerBytes = 256

// sweepWithin bounds the search for containers that an earlier life of this gateway has left.
const sweepWithin = time.Minute

// sweepLocked removes them, once, as soon as a model with an image is declared.
func (s *Server) sweepLocked() {
	r, ok := s.runtime.(*runtimes)
	if !ok || s.swept {
		return
	}
	for _, d := range s.models {
		if d.spec().Run.Image != "" {
			s.swept = true
			s.background(func() {
				ctx, cancel := context.WithTimeout(s.life, sweepWithin)
				defer cancel()
				if err := r.images.Sweep(ctx); err != nil && s.life.Err() == nil {
					s.log.Warn("containers of an earlier gateway, if there are any, are not removed yet", zap.Error(err))
				}
			})
			return
		}
	}
}

func (r *runtimes) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	if l.Image != "" {
		return r.images.Start(ctx, l)
	}
	return r.processes.Start(ctx, l)
}

func (r *runtimes) Close() error { return errors.Join(r.processes.Close(), r.images.Close()) }

// doors is the directory of the sockets that containers connect to, and what removes it.
func (s *Server) doors() (dir string, remove func(), err error) {
	if s.cfg.DataDir != "" {
		abs, err := filepath.Abs(s.cfg.DataDir)
		if err != nil {
			return "", nil, err
		}
		dir = filepath.Join(abs, "doors")
		return dir, func() {}, os.MkdirAll(dir, 0o700)
	}
	if dir, err = os.MkdirTemp("", "xebec-doors-"); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// expect gives a launch of the deployment its token: at the common socket, or at a door of its own where it runs in a container.
func (d *deployment) expect(e local.Expectation) (token string, env []string, err error) {
	if d.spec().Run.Image != "" {
		return d.s.hub.ExpectAtDoor(e)
	}
	token, env = d.s.hub.Expect(e)
	return token, env, nil
}

// unenforced says which of the version's limits do not hold here. The engine enforces all of them.
func (d *deployment) unenforced() []string {
	r, ok := d.s.runtime.(*runtimes)
	if !ok || d.spec().Run.Image != "" {
		return nil
	}
	return r.processes.Unenforced(limits(d.spec()))
}

// preloadLocked tells the processes' runtime which modules models that are declared have preloaded, so that their zygotes are there before
// they are needed.
func (s *Server) preloadLocked() {
	r, ok := s.runtime.(*runtimes)
	if !ok {
		return
	}
	kinds := map[string]*deployment{} // thousands of models may share a few
	for _, d := range s.models {
		if d.preloads != "" {
			kinds[d.preloads] = d
		}
	}
	same := len(kinds) == len(s.preloads)
	for kind := range kinds {
		same = same && s.preloads[kind]
	}
	if same {
		return
	}
	var launches []containers.Launch
	s.preloads = make(map[string]bool, len(kinds))
	for kind, d := range kinds {
		s.preloads[kind] = true
		spec := d.spec()
		launches = append(launches, containers.Launch{Model: d.id, Dir: d.dir(), Command: s.command(*spec), Preload: spec.Preload, Env: environment(*spec)})
	}
	r.processes.Preload(launches)
}

// zygotes are the processes that hold what models have preloaded.
func (s *Server) zygotes() []int {
	if r, ok := s.runtime.(*runtimes); ok {
		return r.processes.Zygotes()
	}
	return nil
}

// preloadKind names what decides which zygote a version's replicas fork from; empty: none.
func (s *Server) preloadKind(spec *api.ModelSpec) string {
	if len(spec.Preload) == 0 {
		return ""
	}
	env := environment(*spec)
	slices.Sort(env)
	return fmt.Sprintf("%q", [][]string{s.command(*spec)[:1], spec.Preload, env})
}
