// Command words is a complete model that answers in streams: it sends its input word by word. A caller may send the parameter "limit", the number
// of words that it wants.
package main

import (
	"context"
	"encoding/json"
	"log"
	"strings"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

func main() {
	if err := xebec.Serve(predict, xebec.WithStreams(), xebec.WithParameters()); err != nil {
		log.Fatal(err)
	}
}

func predict(_ context.Context, b *xebec.Batch) error {
	var parameters struct {
		Limit int `json:"limit"`
	}
	if err := json.Unmarshal(b.Parameters(0), &parameters); err != nil || parameters.Limit < 0 {
		b.Refuse(0, "limit: expected a number of words")
		return nil
	}
	words := strings.Fields(string(b.Bytes("input", 0)))
	if n := parameters.Limit; n > 0 && n < len(words) {
		words = words[:n]
	}
	for _, word := range words {
		b.SetBytes("output", 0, []byte(word))
		if err := b.Send(); err != nil {
			return err // the caller has left
		}
	}
	return nil
}
