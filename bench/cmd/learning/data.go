package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// experiment holds the trainer's files of one part: queries, labels, and every model's answers. The answers are scikit-learn's, from before any
// gateway started. They give the error of static choices, and the gateway's answers are compared with them.
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
	Setting        string    `json:"setting"` // description of users and queries
}

// Trained describes a model. Error is the fraction of all queries that it answers wrongly.
type Trained struct {
	Name  string  `json:"name"`
	What  string  `json:"what"`
	Error float64 `json:"error"`
	// A network has the library that has trained it, the number of its parameters, and the bytes of its file.
	Framework  string `json:"framework,omitempty"`
	Parameters int    `json:"parameters,omitempty"`
	Bytes      int    `json:"bytes,omitempty"`
}

// user is a user of figure 10, with its reported group.
type user struct {
	Group   int     `json:"group"`
	Degrees float64 `json:"degrees"`
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
		return nil, fmt.Errorf("%s.u8 has %d bytes: expected %d rows of %d; remove %s and run again", name, len(pixels), e.Queries, e.Pixels, e.dir)
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
		return nil, fmt.Errorf("%s has %d bytes: expected one int64 for each of %d queries; remove %s and run again", path, len(data), e.Queries, e.dir)
	}
	out := make([]int64, e.Queries)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return out, nil
}

// names returns the names of the models, in order.
func (e *experiment) names() []string {
	var out []string
	for _, m := range e.Models {
		out = append(out, m.Name)
	}
	return out
}

// wrong reports for each answer whether it is wrong.
func (e *experiment) wrong(answers []int64) []bool {
	out := make([]bool, len(answers))
	for i, a := range answers {
		out[i] = a != e.labels[i]
	}
	return out
}
