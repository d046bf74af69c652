// Command pipeline is a complete model that calls two others: one that decodes pictures, and one that says what is on them.
package main

import (
	"context"
	"log"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

func main() {
	if err := xebec.Serve(predict, xebec.WithFunctionCalls()); err != nil {
		log.Fatal(err)
	}
}

func predict(ctx context.Context, b *xebec.Batch) error {
	images := make([][]byte, b.Len())
	for i := range images {
		images[i] = b.Bytes("image", i)
	}
	decoded, err := b.CallFunction(ctx, "decode", images) // one request for all of them
	if err != nil {
		return err
	}
	classified, err := b.CallFunction(ctx, "classify", xebec.Result[float32](decoded, "pixels"))
	if err != nil {
		return err
	}
	for i := range images {
		b.SetBytes("label", i, classified.Bytes("label", i))
	}
	return nil
}
