package api

import (
	"fmt"
	"testing"
)

// TestEveryCodeHasItsStatuses: each code has a unique name and valid HTTP and gRPC statuses. Codes that end a query
// have a reason for callers.
func TestEveryCodeHasItsStatuses(t *testing.T) {
	named := map[string]Code{}
	count := 0
	for c := range Codes {
		count++
		name, http, grpc := c.String(), c.HTTPStatus(), c.GRPCStatus()
		if other, taken := named[name]; taken || name == "" {
			t.Errorf("code %d is called %q, as code %d is", c, name, other)
		}
		named[name] = c
		if (http == 200) != (c == OK) || c != OK && (http < 400 || http > 599) {
			t.Errorf("%s: HTTP status %d", c, http)
		}
		if (grpc == grpcOK) != (c == OK) || grpc < 0 || grpc > 16 {
			t.Errorf("%s: gRPC status %d", c, grpc)
		}
		if (c.Reason() != "") != (c > OK && c < InvalidArgument) {
			t.Errorf("%s: the reason %q: expected one for the ends of a query, and for no other code", c, c.Reason())
		}
		if http < 500 && (grpc == grpcInternal || grpc == grpcUnavailable) {
			t.Errorf("%s: HTTP status %d blames the caller, gRPC status %d the gateway", c, http, grpc)
		}
	}
	if count != int(codeCount) {
		t.Errorf("Codes yields %d codes of %d", count, codeCount)
	}
	if c := codeCount; c.HTTPStatus() != 500 || c.GRPCStatus() != grpcInternal || c.String() != fmt.Sprintf("code(%d)", codeCount) {
		t.Errorf("an unknown code is %s with the statuses %d and %d", c, c.HTTPStatus(), c.GRPCStatus())
	}
}
