package h2

import (
	"fmt"
	"net/http"
	"strings"
)

// isGRPC reports whether a request of this content type is a call of gRPC: application/grpc, or that with a format.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// refuseGRPC answers a call of gRPC in the form that its clients understand. An answer of HTTP is UNAVAILABLE to some of them, or UNKNOWN: they would
// try again, and their users would not learn why. The message is not awaited.
func (o *Options) refuseGRPC(w http.ResponseWriter) {
	const unimplemented = "12"
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", unimplemented)
	h.Set("Grpc-Message", percentEncode(o.GRPC))
	w.WriteHeader(http.StatusOK)
}

// percentEncode encodes a message as gRPC does: what is not printable ASCII, and the percent sign.
func percentEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
