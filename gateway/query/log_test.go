package query

import (
	"context"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// TestLogsQueries: the log has a query's inputs, its answer and its time.
func TestLogsQueries(t *testing.T) {
	dir := t.TempDir()
	l, err := inferlog.Open(inferlog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	f := serve(t, floats4, querytest.Sum, func(f *fixture) { f.fn.Log = l.Function("f", floats4.Inputs, floats4.Outputs, 1) })
	if got, err := f.try(`{"input_batch":[[1,2,3,4],[5,6,7,8]],"context":"u"}`); err != nil || got[0].Code != api.OK || got[1].Code != api.OK {
		t.Fatalf("answered %+v (%v)", got, err)
	}
	after := time.Now()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := [][]byte{querytest.Int64(10), querytest.Int64(26)}
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
