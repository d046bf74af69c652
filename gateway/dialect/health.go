package dialect

import (
	"encoding/json"

	"github.com/xebec-serving/xebec/api"
)

// Alive serves the document of KServe's version 1 at /, with the place where a person finds more.
func Alive(x Exchange) {
	x.Answer(&Answer{Status: 200, ContentType: JSON, Body: []byte(`{"status":"alive","docs":"/docs"}`)})
}

// Health serves the documents that say whether the gateway is alive and ready. ready also returns the reason if it is
// not. For /readyz?verbose problems lists what cannot answer, and upgrade is the upgrade that is under way; both may be nil.
func Health(ready func() (bool, string), problems func() []api.ReadinessProblem, upgrade func() *api.UpgradeStatus) (live, readiness func(Exchange)) {
	live = func(x Exchange) {
		x.Answer(&Answer{Status: 200, ContentType: JSON, Body: []byte(`{"live":true}`)})
	}
	readiness = func(x Exchange) {
		var r api.Readiness
		if r.Ready, r.Reason = ready(); r.Ready {
			r.Reason = ""
		}
		if problems != nil && x.HasQuery("verbose") {
			r.Problems = problems()
		}
		if upgrade != nil && x.HasQuery("verbose") {
			r.Upgrade = upgrade()
		}
		var a Answer
		a.Reset(200)
		if !r.Ready {
			a.Reset(503)
		}
		var err error
		if a.Body, err = json.Marshal(&r); err != nil {
			panic(err) // cannot fail: it is texts, numbers and a bool
		}
		x.Answer(&a)
	}
	return live, readiness
}
