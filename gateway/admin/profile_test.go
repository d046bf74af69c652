package admin

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

func TestProfilesArePprofs(t *testing.T) {
	e := engine(&fakeControl{})
	for _, path := range []string{"/v1/profile/heap", "/v1/profile/goroutine", "/v1/profile/cpu?seconds=1"} {
		resp := ask(e, "GET", path, "").Result()
		zr, err := gzip.NewReader(bytes.NewReader(resp.Body()))
		if resp.StatusCode() != 200 || err != nil {
			t.Errorf("%s: %d, %v", path, resp.StatusCode(), err)
			continue
		}
		if n, err := io.Copy(io.Discard, zr); n == 0 || err != nil {
			t.Errorf("%s: %d bytes, %v", path, n, err)
		}
	}
	for path, want := range map[string]int{"/v1/profile/secrets": 404, "/v1/profile/cpu?seconds=0": 400, "/v1/profile/cpu?seconds=3600": 400, "/v1/profile/heap?debug=1": 400, "/v1/profile/heap?seconds=61": 400} {
		if got := ask(e, "GET", path, "").Result().StatusCode(); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
