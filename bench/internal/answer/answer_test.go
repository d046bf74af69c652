package answer

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
)

func TestOfKeepsWhatTheServerChose(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Content-Type") != "text/plain" || r.Header.Get("X-Length") != "2" || string(body) != "in" {
			t.Errorf("got %q with %v", body, r.Header)
		}
		w.Header().Set("Server", "xebec")
		w.Header().Set("X-B", "2")
		w.Header().Set("X-A", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(503)
		io.WriteString(w, "out\x00")
	}))
	defer s.Close()
	got, err := Of(s.Client(), s.URL, "text/plain", []byte("in"), "X-Length: 2")
	if err != nil {
		t.Fatal(err)
	}
	want := &Answer{Status: 503, Server: "xebec", Fields: [][2]string{{"Content-Type", "application/json"}, {"X-A", "1"}, {"X-B", "2"}}, Body: []byte("out\x00")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// It reaches the other server as JSON.
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var back Answer
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(&back, want) {
		t.Errorf("after JSON: %+v, %v", back, err)
	}
}
