package native

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestRowsAreAnsweredInTheirForm: a row as one query, a frame as a batch, also a frame of one row.
func TestRowsAreAnsweredInTheirForm(t *testing.T) {
	sig := querytest.Floats4
	sig.Inputs = []api.TensorSpec{{Name: "a", DType: api.Float32}, {Name: "kind", DType: api.String}}
	f := serve(t, sig, func(it *scheduler.Item) { querytest.End(it, api.OK, querytest.Int64(3)) })
	for _, c := range [][2]string{
		{`{"input":[5.1,"x"]}`, `{"query_id":`},
		{`{"input_batch":[[5.1,"x"],{"kind":"y","a":null}]}`, `{"batch_predictions":[{`},
		{`{"dataframe_split":{"columns":["kind","a"],"data":[["x",1]]}}`, `{"batch_predictions":[{`},
		{`{"dataframe_records":[{"kind":"x","a":1}]}`, `{"batch_predictions":[{`},
	} {
		if _, body := f.post(predict, c[0]); !strings.HasPrefix(body, c[1]) {
			t.Errorf("%s is answered %s", c[0], body)
		}
	}
	rows := strings.Repeat(`,{"kind":"x","a":1}`, 9)[1:] // the path's bound is 8
	if a, body := f.post(predict, `{"dataframe_records":[`+rows+`]}`); a.Status < 400 {
		t.Errorf("9 rows are answered %s", body)
	}
}
