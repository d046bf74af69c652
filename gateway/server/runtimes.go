package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/docker"
	"github.com/xebec-serving/xebec/containers/mux"
	"github.com/xebec-serving/xebec/containers/process"
	"github.com/xebec-serving/xebec/containers/venv"
	binding "github.com/xebec-serving/xebec/worker/bindings/python"
	"go.uber.org/zap"
)

// hiddenPaths are the paths that no model may see: what the gateway keeps, what opens the admin port, and clients' data.
func hiddenPaths(cfg Config, dir dataDir) (all []string) {
	for _, path := range []string{dir.path, cfg.AdminTokenFile, cfg.AdminKey, cfg.InferenceLog} {
		if path != "" {
			all = append(all, path)
		}
	}
	if cfg.Store != "" && !strings.Contains(cfg.Store, "://") {
		all = append(all, cfg.Store)
	}
	return all
}

// noHostNetwork says why no model may have the host's network: it could deploy a model without isolation.
func noHostNetwork(cfg Config) string {
	if cfg.AdminTokenFile != "" || cfg.Admin == NoPort {
		return ""
	}
	return `"host" is refused while the admin port asks for no token: a model could use it to deploy one without isolation. Start the gateway with --admin-token-file`
}

// newRuntime makes what starts replicas on this host: a launch with an image goes to the container engine, every other one to
// processes. Neither starts anything before it is needed. Whether there is an engine shows when a container is launched.
// environments has those that processes run in.
func newRuntime(cfg Config, dir dataDir, sockets string, log *zap.Logger) (_ containers.Runtime, environments *venv.Runtime, _ error) {
	memory := cfg.replicaMemory()
	processes, err := process.New(process.Config{Hidden: hiddenPaths(cfg, dir), Sockets: sockets, MemoryBytes: memory, NoHostNetwork: noHostNetwork(cfg), Models: dir.file(modelsDir)})
	if err != nil {
		return nil, nil, err
	}
	owner, err := dir.owner()
	if err != nil {
		return nil, nil, errors.Join(err, processes.Close())
	}
	if cfg.AllowBuild && noHostNetwork(cfg) != "" {
		return nil, nil, errors.Join(errors.New("--allow-build: building packages runs their code with the network, and the admin port asks for no token: start the gateway with --admin-token-file"), processes.Close())
	}
	environments = venv.New(venv.Config{Dir: dir.environments(), Python: cfg.Python, Binding: binding.Source(), AllowBuild: cfg.AllowBuild, Environ: os.Environ()}, processes)
	images, err := docker.New(docker.Config{Host: cfg.Docker, Owner: owner, MemoryBytes: memory, Sockets: filepath.Join(sockets, "w"), Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, environments.Close())
	}
	return mux.New(mux.Route{Name: "docker", Takes: mux.Image, Runtime: images}, mux.Route{Name: "process", Runtime: environments}), environments, nil
}

// Environments builds Python environments as a gateway without a data directory does, in the cache of the user. python is the interpreter that they
// are made with; python3 when empty. Close ends it.
func Environments(python string) (*venv.Runtime, error) {
	processes, err := process.New(process.Config{})
	if err != nil {
		return nil, err
	}
	return venv.New(venv.Config{Dir: dataDir{}.environments(), Python: python, Binding: binding.Source(), Environ: os.Environ()}, processes), nil
}
