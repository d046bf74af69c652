package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Networks is what -networks measures: figure 7 with networks of different size. Each is an ONNX file that `xebec deploy` makes a model of; ONNX
// Runtime evaluates it in a worker.
type Networks struct {
	results.Taken
	Quick     bool       `json:"quick,omitempty"`
	Ensembles *Ensembles `json:"networks"`
}

// Empty implements results.Report.
func (n *Networks) Empty() bool { return n.Ensembles == nil }

const (
	// networksSet is the trainer's set of networks, and networksQueries the number of its images that are asked.
	networksSet     = "sets-nets"
	networksQueries = 2000
)

// measureNetworks deploys the networks and asks ensembles of them. Every answer must be one that ONNX Runtime gave in the trainer.
func measureNetworks(ctx context.Context, cfg config, n *Networks) error {
	index, err := loadIndex(cfg.models)
	if err != nil {
		return err
	}
	file := results.Find(index, func(s setFile) bool { return s.Name == networksSet })
	if file == nil || file.Missing != "" {
		return fmt.Errorf("there are no networks: %s", file.reason())
	}
	e, err := load(cfg.models, networksSet)
	if err != nil {
		return err
	}
	e.Queries = min(e.Queries, networksQueries)
	g, err := gateway.Start(ctx, gateway.Options{Programs: cfg.Programs})
	if err != nil {
		return err
	}
	defer g.Stop()
	for _, name := range e.names() {
		if err := deploy(ctx, cfg, g, filepath.Join(e.dir, networksSet+"."+name+".onnx"), name); err != nil {
			return err
		}
	}
	if err := g.Apply(ctx, networkFunctions(e.names())); err != nil {
		return err
	}
	n.Ensembles, err = askEnsembles(ctx, cfg, g, e, file.Title)
	return err
}

// reason says why a set is not there.
func (s *setFile) reason() string {
	if s == nil {
		return "sets.json does not name them"
	}
	return s.Missing
}

// networkFunctions declares a function for each policy of the comparison.
func networkFunctions(models []string) string {
	var m manifestText
	for _, p := range ensemblePolicies {
		m.function(p.function, models, p.policy, patient)
	}
	return m.String()
}

// deploy has `xebec deploy` make a model of a file and waits until it is ready.
func deploy(ctx context.Context, cfg config, g *gateway.Gateway, file, name string) error {
	cmd := exec.CommandContext(ctx, cfg.Xebec, "deploy", file, "--name", name, "--into", filepath.Join(g.Folder, "models"), "--admin", g.Admin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	runner.Logf("    deployed %s", filepath.Base(file))
	return nil
}

// Markdown implements results.Report.
func (n *Networks) Markdown() string {
	var b strings.Builder
	b.WriteString(n.Heading("Networks of different size, served by ONNX Runtime"))
	if n.Quick {
		b.WriteString(results.Smoke)
	}
	e := n.Ensembles
	fmt.Fprintf(&b, "The real gateway, with a worker for each ONNX file that `xebec deploy` made a model of; %s, %d queries over HTTP, one after the other. Every answer was one that ONNX Runtime had given without a gateway. How: ../METHOD.md, models: ../models/learning/nets.py.\n\n", e.Title, e.Queries)
	networkTable(&b, e.Models)
	b.WriteString("\n")
	results.TableHead(&b, "ensemble", "errors, %", "fewer than its best network, %", "the paper on ImageNet: 5.2 % fewer")
	for _, p := range e.Policies {
		fewer := p.Fewer.Over(0.01)
		fmt.Fprintf(&b, "| %s | %.2f | %s | %s |\n", p.Name, 100*p.Error, fewer.PlusMinus(1), results.AtLeast(paperFewer).Judge(p.Fewer))
	}
	b.WriteString("\n")
	agreement(&b, e)
	return b.String()
}

// networkTable is like the paper's table 2.
func networkTable(b *strings.Builder, models []Trained) {
	results.TableHead(b, "network", "", "trained with", "parameters", "file, KiB", "errors, %")
	for _, m := range slices.SortedFunc(slices.Values(models), func(a, b Trained) int { return a.Parameters - b.Parameters }) {
		fmt.Fprintf(b, "| %s | %s | %s | %d | %.0f | %.2f |\n", m.Name, m.What, m.Framework, m.Parameters, float64(m.Bytes)/1024, 100*m.Error)
	}
}
