package query

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A caller that addresses a version that is closed is told why it does not answer and what to do. A function's callers get the usual reason.
func TestClosedVersionsSayWhy(t *testing.T) {
	p, models := namedPath(t)
	var o owner
	o.Init(p, &o)
	for _, m := range models {
		m.Closed.Store(true)
	}
	for _, c := range []struct {
		name, version string
		as            uint32
		want          string
	}{
		{"m", "1", Unloaded, "model m@1 is declared but not loaded: `xebec traffic m --label NAME=1` keeps it loaded under another name, `xebec traffic m --all` keeps all versions loaded, and `xebec promote m@1` lets it serve"},
		{"m", "1", Unproved, "model m@1 answers when it has been warmed up and validated"},
		{"m", "1", Rejected, "model m@1 was rejected and answers no queries: `xebec describe model m` says why"},
		{"f", "", Unloaded, api.NoReplica.Reason()},
	} {
		models["m@1"].ClosedAs.Store(c.as)
		o.Open()
		if err := o.AskNamed(c.name, c.version); err != nil {
			t.Fatal(err)
		}
		q := &Query{request: &o.Request}
		q.Code = api.NoReplica
		if got := q.Reason(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s@%s: %v %s, want %s", c.name, c.version, q.Code, got, c.want)
		}
		o.Drop()
	}
}
