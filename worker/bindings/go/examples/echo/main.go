// Command echo is a complete model: it answers each query with its input, in upper case. Declare it with one input "input" and
// one output "output", both bytes[].
package main

import (
	"bytes"
	"context"
	"log"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

func main() {
	if err := xebec.Serve(predict); err != nil {
		log.Fatal(err)
	}
}

func predict(_ context.Context, b *xebec.Batch) error {
	for i := range b.Len() {
		b.SetBytes("output", i, bytes.ToUpper(b.Bytes("input", i)))
	}
	return nil
}
