package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// experiment is what the trainer has left for one part: queries, what they are, and what every model says of them. The last is
// scikit-learn's own word, from before any gateway was started: it is what static choices are judged by, and what answers are
// compared with.
type experiment struct {
	name, dir string
	about
	rows    [][]byte // uint8 pixels
	labels  []int64
	answers map[string][]int64 // by model
}

// about is the experiment's JSON file.
type about struct {
	Pixels         int       `json:"pixels"`
	Queries        int       `json:"queries"`
	Models         []Trained `json:"models"`
	Users          []user    `json:"users"`
	QueriesPerUser int       `json:"queries_per_user"`
	Setting        string    `json:"setting"` // who asks what, in words
}

// Trained is a model: what it is, and the part of all queries that it gets wrong.
type Trained struct {
	Name  string  `json:"name"`
	What  string  `json:"what"`
	Error float64 `json:"error"`
}

// user is one of figure 10, with the group that it says it belongs to.
type user struct {
	Group   int     `json:"group"`
	Degrees float64 `json:"degrees"`
}

// train runs the trainer, which does nothing when its models are up to date.
func train(ctx context.Context, cfg config) error {
	cmd := exec.CommandContext(ctx, cfg.python, filepath.Join(cfg.models, "learning", "train.py"))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: it needs numpy and scikit-learn; `make demo` makes build/venv, which has them", cmd, err)
	}
	return nil
}

// load reads an experiment from the trainer's folder.
func load(models, name string) (*experiment, error) {
	e := &experiment{name: name, dir: filepath.Join(models, "data", "learning"), answers: map[string][]int64{}}
	data, err := os.ReadFile(filepath.Join(e.dir, name+".json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &e.about); err != nil {
		return nil, fmt.Errorf("%s.json: %w", name, err)
	}
	pixels, err := os.ReadFile(filepath.Join(e.dir, name+".u8"))
	if err != nil {
		return nil, err
	}
	if e.Pixels < 1 || len(pixels) != e.Pixels*e.Queries || e.Queries == 0 {
		return nil, fmt.Errorf("%s.u8 has %d bytes: expected %d rows of %d; remove %s, and it is made anew", name, len(pixels), e.Queries, e.Pixels, e.dir)
	}
	for i := range e.Queries {
		e.rows = append(e.rows, pixels[i*e.Pixels:(i+1)*e.Pixels:(i+1)*e.Pixels])
	}
	if e.labels, err = e.numbers("labels"); err != nil {
		return nil, err
	}
	for _, m := range e.Models {
		if e.answers[m.Name], err = e.numbers(m.Name); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// numbers reads one int64 for each query.
func (e *experiment) numbers(what string) ([]int64, error) {
	path := filepath.Join(e.dir, e.name+"."+what+".i64")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) != 8*e.Queries {
		return nil, fmt.Errorf("%s has %d bytes: expected one int64 for each of %d queries; remove %s, and it is made anew", path, len(data), e.Queries, e.dir)
	}
	out := make([]int64, e.Queries)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return out, nil
}

// names of the models, in order.
func (e *experiment) names() []string {
	var out []string
	for _, m := range e.Models {
		out = append(out, m.Name)
	}
	return out
}

// wrong tells, for each query, whether a model that answers so is wrong.
func (e *experiment) wrong(answers []int64) []bool {
	out := make([]bool, len(answers))
	for i, a := range answers {
		out[i] = a != e.labels[i]
	}
	return out
}
