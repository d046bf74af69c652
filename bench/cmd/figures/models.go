package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// features is what the paper's models take: 28 × 28 pixels.
const features = 784

const rowBytes = 4 * features

// signature is every container's.
var signature = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "pixels", DType: api.Float32, Shape: []int64{features}}},
	Outputs: []api.TensorSpec{{Name: "digit", DType: api.Int64, Shape: []int64{}}},
}

// model is one container's model, with what it should answer.
type model struct {
	name, title string
	dir         string // absolute
	what        string // what there is to evaluate
	queries     []api.Value
	answers     []int64 // to each query
}

// titles, in the order of the paper's figures.
var titles = []struct{ name, title string }{
	{"noop", "no-op"},
	{"linear-svm", "linear SVM"},
	{"logistic", "logistic regression"},
	{"forest", "random forest"},
	{"kernel-svm", "kernel SVM"},
	{"rowwise", "row by row"},
}

// The models that figure 5 is about and that the paper's text compares.
const (
	linearSVM = "linear-svm"
	kernelSVM = "kernel-svm"
	rowByRow  = "rowwise"
)

// train runs the trainer, which does nothing when its models are up to date.
func train(ctx context.Context, python, dir string) error {
	cmd := exec.CommandContext(ctx, python, filepath.Join(dir, "train.py"))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: it needs numpy and scikit-learn; `make demo` makes build/venv, which has them", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// loadModel reads what the trainer has left for one model.
func loadModel(dir, name, title string) (model, error) {
	m := model{name: name, title: title, dir: filepath.Join(dir, name)}
	pixels, err := os.ReadFile(filepath.Join(dir, "data", "queries.f32"))
	if err != nil {
		return m, err
	}
	answers, err := os.ReadFile(filepath.Join(dir, "data", name+".i64"))
	if err != nil {
		return m, err
	}
	what, err := os.ReadFile(filepath.Join(dir, "data", name+".sizes"))
	if err != nil {
		return m, err
	}
	m.what = string(bytes.TrimSpace(what))
	if len(pixels) == 0 || len(pixels)%rowBytes != 0 || len(pixels)/rowBytes != len(answers)/8 {
		return m, fmt.Errorf("%s/data: queries.f32 has %d bytes, %s.i64 %d: expected as many answers as rows of %d bytes; remove the folder and run again", dir, len(pixels), name, len(answers), rowBytes)
	}
	for row := range len(pixels) / rowBytes {
		m.queries = append(m.queries, api.Value{Data: pixels[row*rowBytes : (row+1)*rowBytes : (row+1)*rowBytes]})
		m.answers = append(m.answers, int64(binary.LittleEndian.Uint64(answers[row*8:])))
	}
	return m, nil
}

// check compares an answer with what scikit-learn said of the same image before.
func (m *model) check(row int, outputs []api.Value) error {
	if len(outputs) != 1 || len(outputs[0].Data) != 8 {
		return fmt.Errorf("%s: an answer that is no int64", m.name)
	}
	if got := int64(binary.LittleEndian.Uint64(outputs[0].Data)); got != m.answers[row] {
		return fmt.Errorf("%s: image %d is %d, expected %d", m.name, row, got, m.answers[row])
	}
	return nil
}
