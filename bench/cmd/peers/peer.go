package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ours is the name of Xebec's folder.
const ours = "xebec"

// toolsFolder has the requirements of models.py's training; it is no server.
const toolsFolder = "tools"

// Peer is one server: the file peer.json in its folder, and what became of it.
type Peer struct {
	Name    string `json:"name"`    // of the folder
	Title   string `json:"title"`   // for people
	Package string `json:"package"` // the one in requirements.txt whose version is the server's; empty: ours
	Version string `json:"version"`
	About   string `json:"about"`  // the page of its documentation that it is tuned by
	Tuning  string `json:"tuning"` // in words
	// Ready is the path that answers 200 when the server is ready. In it, in Path and in Body the texts @MODEL@ and @FEATURES@ stand for the model's name and the number of its
	// features, and in Body @ROW@ for the query's numbers as a JSON list.
	Ready string `json:"ready"`
	Path  string `json:"path"`
	Body  string `json:"body"`
	// Answer is a text that a right answer has and a wrong one has not; @OUTPUT@ stands for the model's output.
	Answer string `json:"answer"`
	// ClosedFields are more header fields, as lines, of the requests of closed loops.
	ClosedFields []string `json:"closed_fields,omitempty"`
	// GRPC says that the server speaks the Open Inference Protocol over gRPC, too, with the tensors input and output.
	GRPC bool `json:"grpc"`
	// GRPCParameters are parameters of the calls.
	GRPCParameters map[string]int64 `json:"grpc_parameters,omitempty"`
	// Leaves are patterns of files that the server leaves behind when it is stopped; @PID@ stands for the id of one of its processes.
	Leaves []string `json:"leaves,omitempty"`
	// Local are paths below the repository's root that are installed beside the requirements.
	Local []string `json:"local,omitempty"`
	// Split says where the server counts how long queries wait and how long they are evaluated; nil if it does not.
	Split *SplitSource `json:"split,omitempty"`

	// Missing is why the server could not be had, or empty.
	Missing string `json:"missing,omitempty"`

	folder, environment string
}

// Queries are the inputs of a model and its outputs.
type Queries struct {
	Inputs  [][]float64 `json:"inputs"`
	Outputs []int64     `json:"outputs"`
}

// readPeers reads all servers, Xebec first and the others by name.
func readPeers(folder string) ([]*Peer, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "peer.json"))
	if err != nil {
		return nil, err
	}
	var out []*Peer
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p := &Peer{}
		if err := json.Unmarshal(text, p); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		p.folder = filepath.Dir(file)
		p.Name = filepath.Base(p.folder)
		pins, err := os.ReadFile(filepath.Join(p.folder, "requirements.txt"))
		if err != nil {
			return nil, err
		}
		if p.Package != "" {
			if p.Version = pinned(string(pins), p.Package); p.Version == "" {
				return nil, fmt.Errorf("%s: requirements.txt does not pin %s: expected a line %s==VERSION", p.folder, p.Package, p.Package)
			}
		}
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *Peer) int {
		if (a.Name == ours) != (b.Name == ours) {
			if a.Name == ours {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	if len(out) == 0 || out[0].Name != ours {
		return nil, fmt.Errorf("%s has no %s/peer.json", folder, ours)
	}
	return out, nil
}

func (p *Peer) check() error {
	var wrong []error
	for name, value := range map[string]string{"title": p.Title, "about": p.About, "tuning": p.Tuning, "ready": p.Ready, "path": p.Path} {
		if value == "" {
			wrong = append(wrong, fmt.Errorf("%s is missing", name))
		}
	}
	if !strings.Contains(p.Body, "@ROW@") {
		wrong = append(wrong, fmt.Errorf("body %q has no @ROW@", p.Body))
	}
	// Something must follow, or the output 1 would be found in 12.
	if _, rest, ok := strings.Cut(p.Answer, "@OUTPUT@"); !ok || rest == "" {
		wrong = append(wrong, fmt.Errorf("answer %q: expected a text with @OUTPUT@ and something after it", p.Answer))
	}
	return errors.Join(wrong...)
}

// pinned returns the version that the requirements pin a package to, or "".
func pinned(requirements, name string) string {
	for line := range strings.Lines(requirements) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), name+"=="); ok {
			return version
		}
	}
	return ""
}

// fill puts values in place of the texts between @.
func fill(text, model string, q Queries, i int) string {
	return strings.NewReplacer(
		"@MODEL@", model, "@FEATURES@", strconv.Itoa(len(q.Inputs[i])), "@ROW@", row(q.Inputs[i]), "@OUTPUT@", strconv.FormatInt(q.Outputs[i], 10),
	).Replace(text)
}

// row is a JSON list, every number with a point, as Python's encoder writes floats.
func row(numbers []float64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		text := strconv.FormatFloat(n, 'g', -1, 32)
		b.WriteString(text)
		if !strings.ContainsAny(text, ".e") {
			b.WriteString(".0")
		}
	}
	b.WriteByte(']')
	return b.String()
}
