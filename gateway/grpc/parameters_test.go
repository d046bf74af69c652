package grpc

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestDeadlineHasPassed: a call whose deadline has passed when it comes reaches no model, whatever objective it names.
func TestDeadlineHasPassed(t *testing.T) {
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		t.Error("the model was asked")
		querytest.Sum(it)
	})
	r := f.rude()
	message, err := proto.Marshal(request("f", floats(1, 2, 3, 4), 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	for i, fields := range [][][2]string{{{"grpc-timeout", "0n"}}, {{"grpc-timeout", "0S"}, {"xebec-slo-ms", "5000"}}} {
		stream := uint32(2*i + 1)
		r.call(stream, modelInfer, fields...)
		r.message(stream, len(message), message, true)
		if code, text := r.status(stream); code != "4" {
			t.Errorf("%v: status %s, %s", fields, code, text)
		}
	}
	// The deadline may also pass after the call has begun.
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, slo := range []string{"", "5000"} {
		c := new(rpc)
		if _, err := c.options.Text([]byte("slo_ms"), []byte(cmp.Or(slo, "1"))); err != nil {
			t.Fatal(err)
		}
		if slo == "" {
			c.options.Begin(true)
		}
		if err := c.prepare(ctx, nil, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with the objective %q: %v", slo, err)
		}
	}
}

// TestParametersOfAWrongType: a parameter whose name the gateway knows is refused if its type is another, and is never the model's.
func TestParametersOfAWrongType(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	truth := &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}
	word := &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: "x"}}
	for _, c := range []struct {
		name, model string
		value       *pb.InferParameter
		want        string // empty: accepted
	}{
		{"slo_ms", "f", truth, "slo_ms: true: expected a number"},
		{"slo_ms", "f", word, `slo_ms: "x": expected a number`},
		{"ttl_ms", "m", truth, "ttl_ms: true: expected a number"},
		{"min_confidence", "f", truth, "min_confidence: true: expected a number"},
		{"min_confidence", "m", truth, ""}, // of a model: its own
		{"context", "f", truth, "context: true: expected a text"},
		{"salt", "m", truth, "salt: true: expected a text"},
		{"models", "f", truth, "models: true: expected a text"},
		{"timeout", "m", truth, "parameters.timeout: expected microseconds, 0 or more"},
		{"sequence_id", "m", truth, "parameters.sequence_id: expected a text or an integer"},
		{"priority", "m", word, "parameters.priority: expected an integer, 0 or more"},
		{"binary_data_output", "m", word, "parameters.binary_data_output: expected a truth value"},
		{"triton_enable_empty_final_response", "m", word, "parameters.triton_enable_empty_final_response: expected a truth value"},
		{"slo_ms", "f", &pb.InferParameter{}, ""}, // none
		{"mine", "m", truth, ""},
	} {
		r := request(c.model, floats(1, 2, 3, 4), 1, 4)
		r.Parameters = map[string]*pb.InferParameter{c.name: c.value}
		_, err := f.oip.ModelInfer(f.ctx(), r)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s of %s, %v: %v", c.name, c.model, c.value, err)
			}
			continue
		}
		code(t, err, codes.InvalidArgument, c.want)
	}
}
