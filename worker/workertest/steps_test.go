package workertest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

// flowing is the state of the Stream model, if it steps.
type flowing struct {
	steps []string // that are left
	sent  int      // outputs of the first one
}

func startFlowing(ctx context.Context, b *xebec.Batch) (*flowing, error) {
	s := &flowing{}
	for step := range strings.FieldsSeq(string(b.Bytes("in", 0))) {
		path, ok := strings.CutPrefix(step, "ends:")
		if !ok {
			s.steps = append(s.steps, step)
			continue
		}
		context.AfterFunc(ctx, func() {
			if end, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil { // blocks until the FIFO has a reader
				end.Close()
			}
		})
	}
	return s, nil
}

func (f flow) advance(_ context.Context, running []*xebec.Sequence[*flowing]) error {
	for _, q := range running {
		if err := f.output(q); err != nil {
			return err
		}
	}
	return nil
}

// output sets the next output of a sequence.
func (f flow) output(q *xebec.Sequence[*flowing]) error {
	s := q.State
	for ; len(s.steps) > 0; s.steps, s.sent = s.steps[1:], 0 {
		word, rest, _ := strings.Cut(s.steps[0], ":")
		var data []byte
		switch word {
		case "out":
			data = []byte(rest)
		case "context":
			data = q.Context(0)
		case "parameters":
			data = q.Parameters(0)
		case "call":
			data = callText(q.Call(0))
		case "big":
			n, err := strconv.Atoi(rest)
			if err != nil {
				return err
			}
			data = bytes.Repeat([]byte{'x'}, n)
		case "count":
			n, err := strconv.Atoi(rest)
			if err != nil {
				return err
			}
			if s.sent == n {
				continue
			}
			f.set(q, strconv.AppendInt(nil, int64(s.sent), 10))
			s.sent++
			return nil
		case "forever":
			f.set(q, []byte{'x'})
			return nil
		case "wait":
			if _, err := os.ReadFile(rest); err != nil {
				return err
			}
			continue
		case "bad":
			q.SetBytes("out", 0, nil, 1)
			return nil
		case "refuse":
			q.Refuse(0, rest)
			return nil
		case "fail":
			q.Fail(0, rest)
			return nil
		case "die":
			os.Exit(3)
		case "panic":
			panic("the marker panic")
		default:
			return errors.New("the marker error")
		}
		f.set(q, data)
		s.steps = s.steps[1:]
		return nil
	}
	q.End()
	return nil
}

func (f flow) set(q *xebec.Sequence[*flowing], data []byte) {
	if f.sure {
		confide(q.Batch)
	}
	q.SetBytes("out", 0, data)
}
