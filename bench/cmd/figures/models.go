package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/xebec-serving/xebec/api"
)

// features is the input size of the paper's models: 28 × 28 pixels.
const features = 784

const rowBytes = 4 * features

// signature is the signature of every container.
var signature = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "pixels", DType: api.Float32, Shape: []int64{features}}},
	Outputs: []api.TensorSpec{{Name: "digit", DType: api.Int64, Shape: []int64{}}},
}

// model is one container's model, with the expected answers.
type model struct {
	name, title string
	dir         string // absolute
	what        string // description of the trained model
	queries     []api.Value
	answers     []int64 // to each query
}

// titles are in the order of the paper's figures.
var titles = []struct{ name, title string }{
	{"noop", "no-op"},
	{"linear-svm", "linear SVM"},
	{"logistic", "logistic regression"},
	{"forest", "random forest"},
	{"kernel-svm", "kernel SVM"},
	{"rowwise", "row by row"},
}

// The models of figure 5, and those that the paper's text compares.
const (
	linearSVM = "linear-svm"
	kernelSVM = "kernel-svm"
	rowByRow  = "rowwise"
)

// loadModel reads the trainer's files of one model.
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

// check compares an answer with scikit-learn's answer to the same image.
func (m *model) check(row int, outputs []api.Value) error {
	if len(outputs) != 1 || len(outputs[0].Data) != 8 {
		return fmt.Errorf("%s: the answer is not an int64", m.name)
	}
	if got := int64(binary.LittleEndian.Uint64(outputs[0].Data)); got != m.answers[row] {
		return fmt.Errorf("%s: image %d is %d, expected %d", m.name, row, got, m.answers[row])
	}
	return nil
}
