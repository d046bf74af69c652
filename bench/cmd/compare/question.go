package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"github.com/xebec-serving/xebec/bench/internal/answer"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// A question is a request to the function noop in one of the gateway's protocols.
type question struct {
	path        string
	contentType string
	fields      []string // more header fields, as lines
	// bodies take turns, so that the processor cannot learn one by heart.
	bodies [][]byte
	// answer is what the body of a right answer contains: the model's output, 0, and that it is no default.
	answer []byte
}

// of asks the server at addr.
func (q *question) of(client *http.Client, addr string) (*answer.Answer, error) {
	return answer.Of(client, "http://"+addr+q.path, q.contentType, q.bodies[0], q.fields...)
}

// load returns the question as requests of the load generator to the server at addr.
func (q *question) load(addr string) []loadgen.Request {
	var out []loadgen.Request
	for _, body := range q.bodies {
		out = append(out, loadgen.Request{Wire: loadgen.Render(addr, q.path, q.contentType, body, q.fields...), Contains: q.answer})
	}
	return out
}

func native(contentType string, bodies ...[]byte) question {
	return question{"/noop/predict", contentType, nil, bodies, []byte(`"output":0`)}
}

func nativeJSON(n int) question {
	return native(loadgen.JSON, written(n, func(list []byte) []byte { return fmt.Appendf(nil, `{"input":[%s]}`, list) })...)
}

const oipPath = "/v2/models/noop/infer"

// oipJSON is one query of n numbers in the Open Inference Protocol, without the extension for binary data.
func oipJSON(n int) question {
	bodies := written(n, func(list []byte) []byte {
		return fmt.Appendf(nil, `{"inputs":[{"name":"input","shape":[1,%d],"datatype":"FP32","data":[%s]}]}`, n, list)
	})
	return question{oipPath, loadgen.JSON, nil, bodies, []byte(`"data":[0]`)}
}

// oipBinary is what Triton's client sends by default: the tensors of the request and of the answer lie behind the JSON.
func oipBinary(n int) question {
	text := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"outputs":[{"name":"output","parameters":{"binary_data":true}}]}`, n, 4*n)
	zero := make([]byte, 8) // the output, an int64
	return question{oipPath, loadgen.Binary, []string{"Inference-Header-Content-Length: " + strconv.Itoa(len(text))},
		[][]byte{append([]byte(text), make([]byte, 4*n)...)}, append([]byte("}"), zero...)}
}

// tfJSON is one row of n numbers in TensorFlow Serving's REST protocol.
func tfJSON(n int) question {
	bodies := written(n, func(list []byte) []byte { return fmt.Appendf(nil, `{"instances":[[%s]]}`, list) })
	return question{"/v1/models/noop:predict", loadgen.JSON, nil, bodies, []byte(`"predictions":[0]`)}
}

// written are bodies with different numbers.
func written(n int, body func(list []byte) []byte) [][]byte {
	random := rand.New(rand.NewPCG(1, 1))
	out := make([][]byte, 32)
	for i := range out {
		out[i] = body(numbers(random, n))
	}
	return out
}

// numbers are n float32s of the normal distribution, as most JSON encoders write a float32: with the fewest digits that read back as it, here seven
// to ten of them, and a sign before half of them.
func numbers(random *rand.Rand, n int) []byte {
	var out []byte
	for i := range n {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, float64(float32(random.NormFloat64())), 'g', -1, 32)
	}
	return out
}

// misfits are questions with an input that does not fit the model, which the gateway must refuse: text among the numbers of each protocol, and too few
// bytes.
func misfits() []question {
	var out []question
	for _, q := range []question{small, oipJSON(10), tfJSON(10)} {
		body := q.bodies[0]
		first := bytes.LastIndexByte(body, '[') + 1
		end := first + bytes.IndexAny(body[first:], ",]")
		q.bodies = [][]byte{slices.Concat(body[:first], []byte(`"one"`), body[end:])}
		out = append(out, q)
	}
	short := oipBinary(768)
	short.bodies[0] = short.bodies[0][:len(short.bodies[0])-1]
	return append(out, native(loadgen.Binary, []byte("abc")), short)
}
