package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// startingGateway is in front of a gateway: it refuses requests until it has read what is declared, which the n-th request finds.
func startingGateway(t *testing.T, g *fakeGateway, n int64, unread string) (*httptest.Server, *atomic.Int64) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < n {
			if unread != "" {
				w.Header().Set("Xebec-Unread", unread)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			answer(w, api.ErrorBody{Error: api.ErrorInfo{Code: api.Unavailable.String(), Message: "it is not known yet"}})
			return
		}
		g.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

// Each command that changes something waits for a gateway that has not read what is declared, and says so after a second.
func TestChangesWaitUntilTheGatewayHasRead(t *testing.T) {
	for _, args := range []string{
		"delete traffic plain", "delete function digits", "promote digits-svm", "rollback digits-svm", "traffic plain --serving 1", "scale digits-svm --max 3",
	} {
		s, asked := startingGateway(t, newFakeGateway(t), 4, "a watched directory of models has not been read yet")
		x := newConsole("")
		var looks int
		x.now = func() time.Time { looks++; return then.Add(time.Duration(looks) * time.Second) }
		code, _, stderr := x.run(t.Context(), append(strings.Fields(args), "--admin", s.URL)...)
		if code != 0 || asked.Load() < 4 || strings.Count(stderr, "waiting until the gateway has read what is declared: a watched directory of models has not been read yet (after ") != 1 {
			t.Errorf("%s: status %d after %d requests, %q", args, code, asked.Load(), stderr)
		}
	}
}

// Any other failure is final: the request is not sent again.
func TestChangesDoNotWaitForOtherFailures(t *testing.T) {
	s, asked := startingGateway(t, newFakeGateway(t), 4, "")
	x := newConsole("")
	if code, _, stderr := x.run(t.Context(), "delete", "model", "digits-svm", "--admin", s.URL); code != 1 || asked.Load() != 1 || !strings.Contains(stderr, "it is not known yet") {
		t.Errorf("status %d after %d requests, %q", code, asked.Load(), stderr)
	}
}
