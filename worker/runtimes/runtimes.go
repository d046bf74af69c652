package runtimes

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// Table is the runtime of tables. It ships in the program, as `xebec table`, and has no Source.
const Table = "table"

//go:embed *_model.py
var sources embed.FS

// Found is what a file or a directory was recognised as.
type Found struct {
	// Format is for people: "an ONNX graph".
	Format string
	// Name is the runtime: onnx, sklearn, xgboost, lightgbm, torch, mlflow, huggingface or table.
	Name string
	// Flags are arguments of the runtime behind the path.
	Flags []string
	// Pickle says why loading the file may run code that its writer chose; empty: it does not.
	Pickle string
	// Beside names files in the directory of the file that belong to it.
	Beside []string
	// Requirements is a file in the directory that lists what the model needs; empty: there is none.
	Requirements string
}

// Source is the program of the runtime.
func (f *Found) Source() []byte {
	text, err := sources.ReadFile(f.Name + "_model.py")
	if err != nil {
		panic(err) // every name that Recognise gives is embedded, which a test checks
	}
	return text
}

// Description is what a runtime prints of a model.
type Description struct {
	Inputs  []Tensor `json:"inputs"`
	Outputs []Tensor `json:"outputs"`
	// Notes are sentences for people, without a full stop.
	Notes []string `json:"notes"`
	// Missing is a Python package that is not there, and Requirements what the runtime needs. Nothing else is set then.
	Missing      string   `json:"missing"`
	Requirements []string `json:"requirements"`
}

// Tensor is an input or output, as manifests have it.
type Tensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Media string  `json:"media,omitempty"`
}

// ParseDescription reads the output of a runtime with --describe: its last line. What the libraries print goes before.
func ParseDescription(output []byte) (*Description, error) {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	var d Description
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &d); err != nil {
		return nil, errors.New("it has not described its inputs and outputs")
	}
	if d.Missing == "" && (len(d.Inputs) == 0 || len(d.Outputs) == 0) {
		return nil, errors.New("it has no inputs or no outputs")
	}
	return &d, nil
}

// ParseTensor reads an input that a person describes: "float32[3,224,224]", or "NAME=float32[3,224,224]". Without a name
// it is called name.
func ParseTensor(text, name string) (Tensor, error) {
	t := Tensor{Name: name, Shape: []int64{}}
	if before, after, named := strings.Cut(text, "="); named {
		t.Name, text = before, after
	}
	dtype, rest, ok := strings.Cut(text, "[")
	inner, closed := strings.CutSuffix(rest, "]")
	if !ok || !closed || t.Name == "" {
		return t, fmt.Errorf("%q: expected a type and the shape of one query, such as float32[3,224,224], int64[] or ids=int64[-1]", text)
	}
	known, err := api.ParseDType(dtype)
	if err != nil {
		return t, err
	}
	t.DType = known.String()
	for field := range strings.SplitSeq(inner, ",") {
		if strings.TrimSpace(inner) == "" {
			break
		}
		var n int64
		if _, err := fmt.Sscanf(strings.TrimSpace(field), "%d", &n); err != nil || n < -1 || n == 0 {
			return t, fmt.Errorf("%q: the dimension %q: expected a positive number, or -1 for one that varies", text, field)
		}
		t.Shape = append(t.Shape, n)
	}
	return t, nil
}
