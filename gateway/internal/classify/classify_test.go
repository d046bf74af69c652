package classify

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func top(d api.DType, data []byte, k int) string {
	var c Classifier
	var out []string
	for _, i := range c.Top(d, data, k) {
		out = append(out, string(Append(nil, d, data, i)))
	}
	return strings.Join(out, " ")
}

func floats(v ...float32) (data []byte) {
	for _, f := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
	}
	return data
}

func TestTop(t *testing.T) {
	nan := float32(math.NaN())
	big := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1<<63+1), 1<<63)
	for _, c := range []struct {
		d    api.DType
		data []byte
		k    int
		want string
	}{
		{api.Float32, floats(0.1, 0.7, 0.2), 2, "0.7:1 0.2:2"},
		{api.Float32, floats(0.1, 0.7, 0.2), 9, "0.7:1 0.2:2 0.1:0"},
		{api.Float32, floats(nan, 1, 1, nan), 3, "1:1 1:2 NaN:0"},
		{api.Float32, nil, 3, ""},
		{api.Float32, floats(1), 0, ""},
		{api.Uint64, big, 2, fmt.Sprint(uint64(1<<63+1), ":0 ", uint64(1<<63), ":1")},
		{api.Int64, big, 1, "-9223372036854775807:0"},
		{api.Int8, []byte{255, 2, 0}, 3, "2:1 0:2 -1:0"},
		{api.Uint8, []byte{255, 2, 0}, 1, "255:0"},
		{api.Bool, []byte{1, 0}, 1, ""},
		{api.String, []byte("a"), 1, ""},
	} {
		if got := top(c.d, c.data, c.k); got != c.want {
			t.Errorf("%v of %v: %q, want %q", c.k, c.data, got, c.want)
		}
	}
	var c Classifier
	data := floats(3, 1, 2)
	c.Top(api.Float32, data, 2)
	if n := testing.AllocsPerRun(20, func() { c.Top(api.Float32, data, 2) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
