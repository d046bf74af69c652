package dialect

import (
	"strconv"

	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Health serves the documents that say whether the gateway is alive and ready. ready also returns the reason if it is
// not.
func Health(ready func() (bool, string)) (live, readiness func(Exchange)) {
	live = func(x Exchange) {
		x.Answer(&Answer{Status: 200, ContentType: JSON, Body: []byte(`{"live":true}`)})
	}
	readiness = func(x Exchange) {
		ok, why := ready()
		a := Answer{Status: 200, ContentType: JSON}
		if !ok {
			a.Status = 503
		} else {
			why = ""
		}
		a.Body = appendReadiness(nil, ok, why)
		x.Answer(&a)
	}
	return live, readiness
}

func appendReadiness(dst []byte, ready bool, why string) []byte {
	dst = append(dst, `{"ready":`...)
	dst = strconv.AppendBool(dst, ready)
	if why != "" {
		dst = append(dst, `,"reason":`...)
		dst = tensorjson.AppendString(dst, why)
	}
	return append(dst, '}')
}
