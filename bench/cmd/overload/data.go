package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// data holds the queries and what their answers must contain.
type data struct {
	rows  [][]byte // raw bodies
	wants [][]byte
}

const (
	rowBytes    = 64 * 4 // float32[64]
	answerBytes = 8      // int64
)

// prepare trains the model, unless it is trained, and reads the trainer's queries and answers.
func prepare(ctx context.Context, cfg config) (*data, error) {
	if err := runner.Train(ctx, cfg.Python, filepath.Join(cfg.models, "overload", "train.py")); err != nil {
		return nil, err
	}
	queries, err := os.ReadFile(filepath.Join(cfg.models, "data", "overload.f32"))
	if err != nil {
		return nil, err
	}
	answers, err := os.ReadFile(filepath.Join(cfg.models, "data", "overload.i64"))
	if err != nil {
		return nil, err
	}
	return parseData(queries, answers)
}

func parseData(queries, answers []byte) (*data, error) {
	n := len(queries) / rowBytes
	if n == 0 || len(queries) != n*rowBytes || len(answers) != n*answerBytes {
		return nil, fmt.Errorf("%d bytes of queries and %d of answers: expected %d and %d for each, and at least one; remove them and run again",
			len(queries), len(answers), rowBytes, answerBytes)
	}
	d := &data{}
	for i := range n {
		d.rows = append(d.rows, queries[i*rowBytes:][:rowBytes])
		label := int64(binary.LittleEndian.Uint64(answers[i*answerBytes:]))
		d.wants = append(d.wants, fmt.Appendf(nil, `"output":%d,`, label))
	}
	return d, nil
}

// requests returns the requests to a function, with extra header fields. The stuck function has no right answer.
func (d *data) requests(addr, function string, fields ...string) []loadgen.Request {
	out := make([]loadgen.Request, len(d.rows))
	for i, row := range d.rows {
		out[i] = loadgen.Request{Wire: loadgen.Render(addr, "/"+function+"/predict", loadgen.Binary, row, fields...), Contains: d.wants[i]}
	}
	return out
}
