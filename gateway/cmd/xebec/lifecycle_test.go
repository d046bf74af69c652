package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

// dividedTraffic is a model with every kind of rule at once.
func dividedTraffic() api.TrafficStatus {
	return api.TrafficStatus{
		Spec: api.TrafficSpec{
			Model: "digits-svm", Versions: api.VersionPolicy{Latest: 3}, Serving: "2", Shadow: &api.VersionShare{Version: "3", Percent: 2.5},
			Rollout: &api.RolloutSpec{Version: "1", Guard: api.GuardSpec{MinFeedback: 500}}, Labels: map[string]string{"stable": "2", "canary": "1"},
			Rollback:   &api.RollbackSpec{From: "4", To: "2", Reason: "takes sevens for ones"},
			RolledBack: []string{"3", "4"},
		}.WithDefaults(),
		Revision: 9, Declared: true, Serving: "2",
		Arms: []api.ArmStatus{
			{Version: "2", Rule: "serving", Share: 0.8, Queries: 800, Failed: 1, Feedback: 700, MeanLoss: 0.05, P50MS: 1.25, P99MS: 4.5},
			{Version: "1", Rule: "rollout", Share: 0.2, Queries: 200},
			{Version: "3", Rule: "shadow", Share: 0.025, Queries: 25, P50MS: 1, P99MS: 2},
		},
		Shadow:  &api.ComparedStatus{Version: "3", Same: 20, Different: 4, Failed: 1},
		Rollout: &api.RolloutStatus{Version: "1", Cap: 0.25, Verdict: "undecided", Reason: "200 of 500 judged answers"},
	}
}

func plainTraffic(model string) api.TrafficStatus {
	return api.TrafficStatus{Spec: api.TrafficSpec{Model: model}.WithDefaults(), Serving: "1"}
}

// contested is the traffic of a model whose rules another caller keeps changing: each time it has one more label.
func (g *fakeGateway) contested(model string) api.TrafficStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := plainTraffic(model)
	t.Revision, t.Declared, t.Spec.Labels = uint64(10+g.changed), true, map[string]string{}
	for i := range g.changed {
		t.Spec.Labels[fmt.Sprintf("theirs%d", i)] = "1"
	}
	return t
}

// conflict refuses a change because another one came before.
func (g *fakeGateway) conflict(w http.ResponseWriter, body string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy := strings.Contains(body, `"name":"busy"`)
	if !strings.Contains(body, `"name":"contested"`) && (!busy || g.changed == 2) {
		return false
	}
	g.changed++
	w.WriteHeader(http.StatusConflict)
	stale := api.StaleObject{Kind: api.KindTraffic, Name: "contested", Revision: uint64(10 + g.changed), Action: "updated", By: "ann (127.0.0.1)", Time: then}
	answer(w, api.ErrorBody{Error: api.ErrorInfo{
		Code: "conflict", Stale: []api.StaleObject{stale},
		Message: fmt.Sprintf("traffic contested is at revision %d (updated by ann (127.0.0.1) at %s), and was expected at revision %d: nothing was changed; read it again, and change what is there now", stale.Revision, then.Format(time.RFC3339), stale.Revision-1),
	}})
	return true
}

// lifecycle adds the routes of traffic, history and export.
func (g *fakeGateway) lifecycle(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/traffic", func(w http.ResponseWriter, _ *http.Request) {
		pinned := api.TrafficStatus{Spec: api.TrafficSpec{Model: "aaa", Serving: "7", Split: &api.VersionShare{Version: "8", Percent: 10}, Versions: api.VersionPolicy{Specific: []string{"7", "8"}}}.WithDefaults(), Declared: true}
		answer(w, api.TrafficList{Traffic: []api.TrafficStatus{dividedTraffic(), pinned}})
	})
	mux.HandleFunc("GET /v1/traffic/{name}", func(w http.ResponseWriter, r *http.Request) {
		t := plainTraffic(r.PathValue("name"))
		switch name := r.PathValue("name"); name {
		case "digits-svm":
			t = dividedTraffic()
		case "plain":
		case "busy", "contested":
			t = g.contested(name)
		case "waiting":
			t.Spec.Serving, t.Spec.Transition = "2", api.TransitionResources
		case "slow":
			g.mu.Lock()
			if g.asks++; g.asks < 3 {
				t.Serving = ""
			}
			g.mu.Unlock()
		case "never": // its rule names a version that never finishes loading
		case "broken", "rejected":
			t.Serving = ""
		default:
			refuse(w, api.NotFound, fmt.Sprintf("no model %q", name))
			return
		}
		answer(w, api.TrafficList{Traffic: []api.TrafficStatus{t}})
	})
	moved := func(w http.ResponseWriter, r *http.Request) {
		body := g.note(r)
		if r.PathValue("name") == "missing" {
			refuse(w, api.NotFound, `no model "missing"`)
			return
		}
		version := ""
		if !strings.Contains(body, "version") {
			version = "1"
		}
		answer(w, api.Changes{Changes: []api.Change{{Kind: api.KindTraffic, Name: r.PathValue("name"), Version: version, Action: api.Updated}}})
	}
	mux.HandleFunc("POST /v1/models/{name}/promote", moved)
	mux.HandleFunc("POST /v1/models/{name}/rollback", moved)
	mux.HandleFunc("DELETE /v1/traffic/{name}", func(w http.ResponseWriter, r *http.Request) {
		g.note(r)
		answer(w, api.Changes{Changes: []api.Change{{Kind: api.KindTraffic, Name: r.PathValue("name"), Action: api.Deleted}}})
	})
	mux.HandleFunc("GET /v1/history", func(w http.ResponseWriter, r *http.Request) {
		answer(w, api.History{Events: []api.HistoryEvent{
			{Revision: 9, Time: then.Add(time.Hour), By: "ann@laptop (127.0.0.1)", Gateway: "a", Action: "rolled back", Kind: api.KindTraffic, Name: "digits-svm", Version: "2", Detail: "from 4 to 2:\ntakes sevens for ones"},
			{Revision: 8, Time: then, Action: "created", Kind: api.KindFunction, Name: "digits", Detail: "limit " + r.URL.Query().Get("limit")},
		}})
	})
	mux.HandleFunc("GET /v1/history/{name}", func(w http.ResponseWriter, r *http.Request) {
		h := api.History{Events: []api.HistoryEvent{}}
		if name := r.PathValue("name"); name == "plain" {
			h.Events = append(h.Events,
				api.HistoryEvent{Revision: 7, Time: then, By: "--config", Action: "created", Kind: api.KindTraffic, Name: name},
				api.HistoryEvent{Revision: 7, Time: then, By: "--config", Action: "created", Kind: api.KindModel, Name: name, Version: "1"})
		}
		answer(w, h)
	})
	mux.HandleFunc("GET /v1/export", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		_, _ = io.WriteString(w, "# "+r.Header.Get("Accept")+"\n"+exported)
	})
}

// exported is the export of the fake gateway.
const exported = `kind: Model
name: digits-svm
version: "2"
inputs: [{name: input, dtype: float32, shape: [64]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py]}
---
kind: Function
name: digits
models: [digits-svm]
`

func TestExportToAFile(t *testing.T) {
	g := newFakeGateway(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "backup.yaml"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if out := execute(t, g, "", []string{"export", "--file", link}); out != "" {
		t.Errorf("the output is %q, want none", out)
	}
	text, err := os.ReadFile(file)
	if want := "# application/yaml\n" + exported; err != nil || string(text) != want {
		t.Errorf("got %q, %v; want %q", text, err, want)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	for path, want := range map[string]string{dir: "is not a regular file", filepath.Join(dir, "none", "f"): "no such file", "/dev/null": "is not a regular file"} {
		if out := execute(t, g, "", []string{"export", "--file", path}); !strings.Contains(out, want) || !strings.Contains(out, "exit status 1") {
			t.Errorf("%s: got %q, want %q", path, out, want)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

// secured is an admin port with TLS and a token.
func secured(t *testing.T, asked *http.Header) (address, ca string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.Header
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			w.WriteHeader(http.StatusUnauthorized)
			answer(w, api.ErrorBody{Error: api.ErrorInfo{Code: "unauthorized", Message: "this admin port asks for a token"}})
			return
		}
		answer(w, api.FunctionList{Functions: []api.FunctionStatus{digits()}})
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // some handshakes fail on purpose
	s.StartTLS()
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, ca
}

func TestCredentials(t *testing.T) {
	var asked http.Header
	address, ca := secured(t, &asked)
	dir := t.TempDir()
	good, open, empty, wrong := filepath.Join(dir, "good"), filepath.Join(dir, "open"), filepath.Join(dir, "empty"), filepath.Join(dir, "wrong")
	for path, text := range map[string]string{good: "ann:0123456789abcdef\n", open: "0123456789abcdef", empty: "", wrong: "fedcba9876543210"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		code int
		want string
	}{
		{"by flags", nil, []string{"--admin", address, "--token-file", good, "--ca", ca}, 0, ""},
		{"by the environment", map[string]string{"XEBEC_ADMIN": address, "XEBEC_TOKEN_FILE": good, "XEBEC_CA": ca}, nil, 0, ""},
		{"no token", nil, []string{"--admin", address, "--ca", ca}, 1, "this admin port asks for a token"},
		{"another token", nil, []string{"--admin", address, "--ca", ca, "--token-file", wrong}, 1, "this admin port asks for a token"},
		{"an unknown certificate", nil, []string{"--admin", address, "--token-file", good}, 1, "--ca FILE names the certificates to trust"},
		{"a file that others can read", nil, []string{"--admin", address, "--ca", ca, "--token-file", open}, 1, "--token-file: the token file " + open + " has mode 0644, which gives others access: chmod 600"},
		{"an empty file", nil, []string{"--admin", address, "--ca", ca, "--token-file", empty}, 1, "has no token in it"},
		{"no certificate", nil, []string{"--admin", address, "--ca", good, "--token-file", good}, 1, "the file has no certificate"},
		{"no such certificate", nil, []string{"--admin", address, "--ca", filepath.Join(dir, "none"), "--token-file", good}, 1, "--ca: open "},
		{"in the clear", nil, []string{"--admin", "http://192.0.2.1:1338", "--token-file", good}, 2, "because the token could be read on the way: give --admin https://192.0.2.1:1338"},
		{"without TLS", nil, []string{"--admin", "http" + strings.TrimPrefix(address, "https"), "--token-file", good}, 1, "speaks TLS: give --admin " + address},
	} {
		asked = nil
		x := newConsole("")
		x.env["USER"] = "ann b"
		maps.Copy(x.env, c.env)
		code, _, stderr := x.run(t.Context(), append([]string{"get", "functions"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "0123456789") {
			t.Errorf("%s: exit status %d, %q; want %d, %q", c.name, code, stderr, c.code, c.want)
		}
		if user := asked.Get("Xebec-User"); asked != nil && !strings.HasPrefix(user, "ann_b@") {
			t.Errorf("%s: the gateway was told that the user is %q", c.name, user)
		}
	}
}

// The function port is verified with the certificates of --ca, too, and gets no token.
func TestCertificatesOfTheFunctionPort(t *testing.T) {
	var asked http.Header
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header
		_, _ = io.WriteString(w, `{"output":1,"status":"ok"}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // some handshakes fail on purpose
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	for path, text := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), token: []byte("0123456789abcdef")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clear := "http" + strings.TrimPrefix(s.URL, "https")
	for _, command := range [][]string{{"invoke", "f", "--input", "1"}, {"feedback", "f", "--query-id", "1", "--label", "1"}} {
		for _, c := range []struct {
			name string
			env  map[string]string
			args []string
			code int
			want string
		}{
			{"by a flag", nil, []string{"--server", s.URL, "--ca", ca, "--token-file", token}, 0, ""},
			{"by the environment", map[string]string{"XEBEC_SERVER": s.URL, "XEBEC_CA": ca}, nil, 0, ""},
			{"an unknown certificate", nil, []string{"--server", s.URL}, 1, "the gateway's certificate is not trusted: x509: certificate signed by unknown authority: --ca FILE names the certificates to trust"},
			{"no certificate", nil, []string{"--server", s.URL, "--ca", token}, 1, "the file has no certificate"},
			{"no such file, which is not needed", nil, []string{"--server", clear, "--ca", filepath.Join(dir, "none")}, 1, "is --server right?"},
		} {
			asked = nil
			x := newConsole("")
			maps.Copy(x.env, c.env)
			code, _, stderr := x.run(t.Context(), slices.Concat(command, c.args)...)
			if code != c.code || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "no gateway answers") {
				t.Errorf("%s, %s: exit status %d, %q; want %d, %q", command[0], c.name, code, stderr, c.code, c.want)
			}
			if c.code == 0 && asked == nil || asked.Get("Authorization") != "" {
				t.Errorf("%s, %s: the function port was asked with %v", command[0], c.name, asked)
			}
		}
	}
}

// Any name of a user or a machine fits into a header.
func TestCallerName(t *testing.T) {
	for _, c := range [][3]string{
		{"ann", "laptop", "ann@laptop"}, {"ann", "", "ann"}, {"Ännchen", "köln", "_nnchen@k_ln"}, {"a\nb", "c\x00d", "a_b@c_d"},
		{strings.Repeat("u", 500), strings.Repeat("h", 500), strings.Repeat("u", 63) + "@" + strings.Repeat("h", 63)},
	} {
		if diff := cmp.Diff(c[2], callerName(c[0], c[1])); diff != "" {
			t.Errorf("%q at %q (-want +got):\n%s", c[0], c[1], diff)
		}
	}
}
