package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

// installWithin is enough for the half of a gigabyte that the largest server takes.
const installWithin = 20 * time.Minute

// copies makes uv copy files into environments. With links, as it makes by default, the servers would share the pages of their libraries, and each
// would seem to have less memory resident than it has alone.
const copies = "UV_LINK_MODE=copy"

// notTried are servers that were left out on purpose.
var notTried = []Failure{
	{Peer: "TorchServe", Why: "its workers import torch, whose package for Linux is the one for CUDA, with several gigabytes of libraries"},
	{Peer: "Triton's ONNX backend", Why: "it comes only in NVIDIA's images; PyTriton's server has the Python backend"},
}

// prepare makes the environments and the models. A peer whose environment cannot be made is marked as missing.
func prepare(ctx context.Context, cfg config, peers []*Peer) (map[string]Queries, error) {
	tools := &Peer{Name: toolsFolder, folder: filepath.Join(cfg.peers, toolsFolder)}
	for _, p := range append([]*Peer{tools}, peers...) {
		p.environment = filepath.Join(cfg.environments, p.Name)
		err := installPeer(ctx, cfg, p)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			continue
		}
		if p.Name == ours || p == tools {
			return nil, fmt.Errorf("the environment of %s: %w", p.Name, err)
		}
		p.Missing = err.Error()
		runner.Logf("    %s could not be had: %v", p.Name, err)
	}
	folder := filepath.Join(cfg.environments, "models")
	train := exec.CommandContext(ctx, filepath.Join(tools.environment, "bin", "python"), filepath.Join(cfg.peers, "models.py"))
	train.Env = append(os.Environ(), "PEER_MODELS="+folder, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := train.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", train, err, out)
	}
	text, err := os.ReadFile(filepath.Join(folder, "queries.json"))
	if err != nil {
		return nil, err
	}
	var data map[string]Queries
	if err := json.Unmarshal(text, &data); err != nil {
		return nil, fmt.Errorf("queries.json: %w", err)
	}
	for _, model := range modelNames {
		if q := data[model]; len(q.Inputs) == 0 || len(q.Inputs) != len(q.Outputs) {
			return nil, fmt.Errorf("queries.json has %d inputs and %d outputs of %s: expected as many of each, and some", len(q.Inputs), len(q.Outputs), model)
		}
	}
	return data, nil
}

// installPeer makes the environment of a peer, unless it has one of the same requirements.
func installPeer(ctx context.Context, cfg config, p *Peer) error {
	requirements := filepath.Join(p.folder, "requirements.txt")
	text, err := os.ReadFile(requirements)
	if err != nil {
		return err
	}
	args := []string{"-r", requirements}
	hash := sha256.New()
	hash.Write([]byte(copies))
	hash.Write(text)
	for _, l := range p.Local {
		from := filepath.Join(cfg.root, l)
		args = append(args, from)
		if err := hashFolder(hash, from); err != nil {
			return err
		}
	}
	stamp := hex.EncodeToString(hash.Sum(nil)) + "\n"
	done := filepath.Join(p.environment, "peer.stamp")
	if have, err := os.ReadFile(done); err == nil && string(have) == stamp {
		return nil
	}
	began := time.Now()
	runner.Logf("==> making the environment of %s", p.Name)
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	if err := os.RemoveAll(p.environment); err != nil {
		return err
	}
	python := filepath.Join(p.environment, "bin", "python")
	steps := [][]string{{"python3", "-m", "venv", p.environment}, append([]string{python, "-m", "pip", "install", "--quiet", "--prefer-binary"}, args...)}
	if uv, err := exec.LookPath("uv"); err == nil {
		steps = [][]string{{uv, "venv", "--quiet", "--python", "python3", p.environment}, append([]string{uv, "pip", "install", "--quiet", "--python", python}, args...)}
	}
	for _, step := range steps {
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Env = append(os.Environ(), copies)
		var output server.Tail
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("not within %s: %w", installWithin, errors.Join(ctx.Err(), err))
			}
			return fmt.Errorf("%s: %w: %s", filepath.Base(step[0]), err, lastLines(output.String()))
		}
	}
	runner.Logf("    %.0f s", time.Since(began).Seconds())
	return os.WriteFile(done, []byte(stamp), 0o644)
}

// hashFolder adds the Python and C files of a folder, so that a changed one is installed again.
func hashFolder(to interface{ Write([]byte) (int, error) }, folder string) error {
	return filepath.WalkDir(folder, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Ext(name) {
		case ".py", ".c", ".toml":
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			_, err = to.Write(text)
			return err
		}
		return nil
	})
}

// lastLines shortens an installer's output to where it says why it failed.
func lastLines(output string) string {
	const most = 6
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
