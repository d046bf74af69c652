package server

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/gateway/http"
)

// A handler that panics is in the log, with the request and the stack.
func TestPanicsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	s := &Server{log: zap.New(core)}
	s.panicked("functions")(http.Panic{Method: "POST", Path: "/f/predict", RequestID: "r1", Value: "a defect", Stack: []byte("the stack")})
	all := logs.AllUntimed()
	if len(all) != 1 {
		t.Fatalf("%d entries, want 1", len(all))
	}
	fields := all[0].ContextMap()
	for name, want := range map[string]any{
		"port": "functions", "method": "POST", "path": "/f/predict", "request_id": "r1", "panic": "a defect", "stack": "the stack", "panics_ever": uint64(1),
	} {
		if got := fields[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
