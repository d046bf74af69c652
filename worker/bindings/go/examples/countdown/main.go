// Command countdown is a complete model that advances all of its streams in one call, as a language model would: it counts down from its input.
package main

import (
	"context"
	"log"
	"strconv"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

func main() {
	if err := xebec.ServeSteps(start, step); err != nil {
		log.Fatal(err)
	}
}

// start makes the state of one sequence.
func start(_ context.Context, b *xebec.Batch) (int, error) {
	n, err := strconv.Atoi(string(b.Bytes("input", 0)))
	if err != nil || n < 1 {
		b.Refuse(0, "expected a number from 1")
	}
	return n, nil
}

// step advances all running sequences by one output each.
func step(_ context.Context, running []*xebec.Sequence[int]) error {
	for _, q := range running {
		q.State--
		q.SetBytes("output", 0, strconv.AppendInt(nil, int64(q.State), 10))
		if q.State == 0 {
			q.End() // this was its last output
		}
	}
	return nil
}
