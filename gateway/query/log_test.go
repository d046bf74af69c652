package query

import (
	"context"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// What is logged of a query is what it asked, what it was told and when it came.
func TestLogsQueries(t *testing.T) {
	dir := t.TempDir()
	l, err := inferlog.Open(inferlog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	f := serve(t, floats4, sum, func(f *fixture) { f.fn.Log = l.Function("f", floats4.Inputs, floats4.Outputs, 1) })
	if status, _, body := f.post("/f/predict", "application/json", `{"input_batch":[[1,2,3,4],[5,6,7,8]],"context":"u"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	after := time.Now()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := [][]byte{int64Bytes(10), int64Bytes(26)}
	sum, err := inferlog.Read([]string{dir}, func(e *inferlog.Entry) error {
		r := &e.Record
		if at := time.UnixMicro(r.AtMicros); at.Before(before.Add(-time.Second)) || at.After(after.Add(time.Second)) { // the clock may be set meanwhile
			t.Errorf("the query came at %s, between %s and %s", at, before, after)
		}
		if r.Code != api.OK || r.Default || string(r.Context) != "u" || r.TookMicros < 0 || len(r.Models) != 1 || r.Models[0] != (api.ModelID{Name: "m", Version: "1"}) {
			t.Errorf("%+v", r)
		}
		if len(want) == 0 || len(r.Outputs) != 1 || string(r.Outputs[0].Data) != string(want[0]) {
			t.Fatalf("output %v: expected one of %v", r.Outputs, want)
		}
		want = want[1:]
		return nil
	})
	if err != nil || sum.Queries != 2 || sum.Damaged > 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}
