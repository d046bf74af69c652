package grpc

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tf "github.com/xebec-serving/xebec/api/tensorflowpb"
	xb "github.com/xebec-serving/xebec/api/xebecpb"
)

// A message of tiny parts, which would take thirty times its size, is refused before it is decoded; honest ones of any size are not.
func TestMessagesThatGrow(t *testing.T) {
	const n = 8 << 20
	for _, c := range []struct {
		what    string
		message proto.Message
		wire    []byte
		refused bool
	}{
		{"empty queries", &xb.PredictBatchRequest{}, bytes.Repeat([]byte{2<<3 | 2, 0}, n/2), true},
		{"empty features", &tf.PredictRequest{}, bytes.Repeat([]byte{2<<3 | 2, 0}, n/2), true},
		{"few queries", &xb.PredictBatchRequest{}, bytes.Repeat([]byte{2<<3 | 2, 0}, 1000), false},
		{"raw bytes", &tf.TensorProto{}, must(proto.Marshal(&tf.TensorProto{TensorContent: make([]byte, n)})), false},
		{"zeros", &tf.TensorProto{}, must(proto.Marshal(&tf.TensorProto{Int64Val: make([]int64, n)})), false},
		{"doubles", &tf.TensorProto{}, must(proto.Marshal(&tf.TensorProto{DoubleVal: make([]float64, n/8)})), false},
		{"cut off", &tf.TensorProto{}, []byte{2<<3 | 2, 200}, false}, // the library refuses it
	} {
		err := checkWeight(c.wire, c.message.ProtoReflect().Descriptor())
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "expected at most 8 times its size") {
			t.Errorf("%s: %v, refused should be %v", c.what, err, c.refused)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
