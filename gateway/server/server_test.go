package server

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

func actions(changes []api.Change) string {
	var out []string
	for _, c := range changes {
		out = append(out, string(c.Kind)+" "+c.Name+" "+string(c.Action))
	}
	return strings.Join(out, ", ")
}

func TestApplySaysWhatItDid(t *testing.T) {
	s, rt, _ := started(t, Config{Python: "/opt/python"})
	ctx := context.Background()
	apply := func(text, want string, dryRun bool) {
		t.Helper()
		changes, err := s.Apply(ctx, decoded(t, text), dryRun)
		if err != nil || actions(changes) != want {
			t.Fatalf("apply: %s, %v; want %s", actions(changes), err, want)
		}
	}
	apply(model+fn, "Model m created, Function f created", true)
	if models, _ := s.Models(ctx, ""); len(models) != 0 {
		t.Fatalf("a dry run made %v", models)
	}
	apply(model+fn, "Model m created, Function f created", false)
	apply(model+fn, "Model m unchanged, Function f unchanged", false)
	apply(strings.Replace(model, "max: 2", "max: 3", 1), "Model m updated", false)
	apply(strings.Replace(model, `"1"`, `"2"`, 1), "Model m created", false)

	state := s.catalog.Lock()
	state.MarkServed(state.Version(api.ModelID{Name: "m", Version: "1"}))
	s.catalog.Unlock()
	_, err := s.Apply(ctx, decoded(t, strings.Replace(model, "model.py", "other.py", 1)), false)
	if code(err) != api.Conflict || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a changed version is answered %v", err)
	}
	if l := <-rt.launched; l.Command[0] != "/opt/python" || !strings.Contains(strings.Join(l.Env, " "), "A=b") {
		t.Errorf("launched %+v", l)
	}
}

func TestApplyIsAllOrNothing(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	for _, bad := range []string{
		strings.Replace(fn, "models: [m]", "models: [unknown]", 1),
		strings.Replace(fn, "models: [m]", `models: ["m@7"]`, 1),
		strings.Replace(fn, "default: -1", "default: [1, 2]", 1),
	} {
		set, err := manifest.Decode("test.yaml", []byte(model+bad))
		if err == nil {
			_, err = s.Apply(ctx, set, false)
		}
		if err == nil {
			t.Errorf("accepted %s", bad)
		}
		if models, _ := s.Models(ctx, ""); len(models) != 0 {
			t.Fatalf("left %v behind", models)
		}
	}
}

func TestANewVersionMustFitTheFunctionsThatWillUseIt(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	if _, err := s.Apply(ctx, decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	second := strings.Replace(strings.Replace(model, `version: "1"`, `version: "2"`, 1), "dtype: int64, shape: []", "dtype: float32, shape: [3]", 1)
	if _, err := s.Apply(ctx, decoded(t, second), false); code(err) != api.InvalidArgument || !strings.Contains(err.Error(), "function f") {
		t.Errorf("a version whose outputs contradict f's default: %v", err)
	}
}

func TestDeleteKeepsWhatFunctionsNeed(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	if _, err := s.Apply(ctx, decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(ctx, api.KindModel, api.ModelID{Name: "m"}); code(err) != api.Conflict {
		t.Errorf("deleting a model that is needed: %v", err)
	}
	if _, err := s.Delete(ctx, api.KindFunction, api.ModelID{Name: "unknown"}); code(err) != api.NotFound {
		t.Errorf("deleting nothing: %v", err)
	}
	for _, kind := range []api.Kind{api.KindFunction, api.KindModel} {
		name := map[api.Kind]string{api.KindFunction: "f", api.KindModel: "m"}[kind]
		if changes, err := s.Delete(ctx, kind, api.ModelID{Name: name}); err != nil || changes[0].Action != api.Deleted {
			t.Errorf("delete %s: %v %v", kind, changes, err)
		}
	}
	if models, _ := s.Models(ctx, ""); len(models) != 0 {
		t.Errorf("left %v", models)
	}
}

func TestReadinessNamesWhatItWaitsFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(file, []byte(model+fn), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, addr := started(t, Config{})
	_, _, waiting := started(t, Config{Manifests: []string{file}})
	ready := func(addr string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if status, body := ready(addr); status != 200 {
		t.Errorf("with nothing declared: %d %s", status, body)
	}
	if status, body := ready(waiting); status != 503 || !strings.Contains(body, "m@1") {
		t.Errorf("with a replica that does not come: %d %s", status, body)
	}
	if _, err := s.Apply(context.Background(), decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	if status, body := ready(addr); status != 200 {
		t.Errorf("what is declared later makes the gateway unready: %d %s", status, body)
	}
}

func TestAFunctionWithoutReplicaAnswersItsDefaultAtTheDeadline(t *testing.T) {
	s, _, addr := started(t, Config{})
	if _, err := s.Apply(context.Background(), decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+"/f/predict", "application/json", strings.NewReader(`{"input":[1,2,3,4]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.Contains(string(body), `"output":-1,"default":true,"default_explanation":"No connected models found for query"`) {
		t.Errorf("answer %d %s", resp.StatusCode, body)
	}
}

// Run serves from the call of started until its context ends.
func TestRunServesUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	live := func(admin string) error {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + admin + "/healthz")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	var port string
	if err := Run(ctx, Config{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Runtime: newIdle()}, func(_, admin string) {
		port = admin
		if err := live(admin); err != nil {
			t.Error(err)
		}
		cancel()
	}); err != nil {
		t.Error(err)
	}
	if port == "" || live(port) == nil {
		t.Errorf("the admin port %q is open after the end", port)
	}
}

// A start that fails closes what it has opened.
func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	broken := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(broken, []byte("kind: Function\nname: f\nmodels: [unknown]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"listen on the admin port":  {Admin: busy.Addr().String()},
		"--store":                   {Store: "redis://"},
		"--data-dir":                {DataDir: "/dev/null/no-directory"},
		"there is no model unknown": {Manifests: []string{broken}},
		"no such file":              {Manifests: []string{broken + "x"}},
	} {
		cfg.Listen, cfg.Admin, cfg.Runtime = "127.0.0.1:0", cmp.Or(cfg.Admin, "127.0.0.1:0"), newIdle()
		s := New(cfg)
		if err := s.Start(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %q", err, want)
		}
		if s.Listen() == "" {
			continue // it failed before that
		}
		ln, err := net.Listen("tcp", s.Listen())
		if err != nil {
			t.Errorf("after %q the function port is not free: %v", want, err)
			continue
		}
		ln.Close()
	}
}
