package http

import (
	"slices"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// What pages may send to a function and see of its answers, beside what browsers always permit (fetch.spec.whatwg.org,
// section 3.2).
const (
	requestFields = "Content-Type, Content-Encoding, Xebec-Context, Xebec-Slo-Ms, X-Request-Id, Traceparent, Tracestate"
	exposedFields = "Retry-After, X-Request-Id, Traceparent, Xebec-Query-Id, Xebec-Default, Xebec-Default-Explanation, Xebec-Confidence, Xebec-Models, Xebec-Late, Xebec-Failed, Xebec-Dropped"
)

// vary keeps caches from giving one page the answer to another.
var vary = dialect.Field{Name: "Vary", Value: []byte("Origin")}

// answerFields are the fields of an answer that a page of this origin may read. every: all pages may.
func answerFields(c *api.CORSSpec, origin string, every bool) []dialect.Field {
	if every { // never with credentials: a spec with both is not valid
		origin = "*"
	}
	fields := []dialect.Field{{Name: "Access-Control-Allow-Origin", Value: []byte(origin)}, {Name: "Access-Control-Expose-Headers", Value: []byte(exposedFields)}}
	if c.Credentials && !every {
		fields = append(fields, dialect.Field{Name: "Access-Control-Allow-Credentials", Value: []byte("true")})
	}
	return fields
}

// preflightFields say what a page of this origin may send.
func preflightFields(c *api.CORSSpec, origin string, every bool) []dialect.Field {
	fields := slices.DeleteFunc(answerFields(c, origin, every), func(f dialect.Field) bool { return f.Name == "Access-Control-Expose-Headers" })
	headers := strings.Join(append([]string{requestFields}, c.Headers...), ", ")
	return append(fields,
		dialect.Field{Name: "Access-Control-Allow-Methods", Value: []byte("POST")},
		dialect.Field{Name: "Access-Control-Allow-Headers", Value: []byte(headers)},
		dialect.Field{Name: "Access-Control-Max-Age", Value: strconv.AppendInt(nil, int64(c.MaxAge.Seconds()), 10)})
}

// function returns the function that a path addresses, whose cors rules the request, or "".
func (list functionRoutes) function(path []byte) string {
	name, _ := list.find(path)
	return string(name)
}
