package apptest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// storesDir has a folder for each earlier program, named after its commit, with a data directory in file and a Redis database in redis. Each
// has a witness.json with what that program reported. README.md says how to add a store.
const storesDir = "testdata/stores"

// witness is what a gateway reports of its store. A later program must report everything that the writer of the store did, and may report more.
type witness struct {
	Revision float64 `json:"revision"`
	// Export is `xebec export -o json`. Functions and Traffic include those of watched models, which an export lacks.
	Export    []any `json:"export"`
	Functions any   `json:"functions"`
	Traffic   any   `json:"traffic"`
	// History is newest first.
	History []any `json:"history"`
	// Learned has each function's policy.
	Learned map[string]any `json:"learned"`
	// Answers are to requests with exactly one right answer.
	Answers []asked `json:"answers"`
	// Logged are the lines of `xebec replay --print`, of a data directory only.
	Logged []any `json:"logged,omitempty"`
}

// asked is a request and the parts of its answer that must not change.
type asked struct {
	Path   string `json:"path"`
	Body   string `json:"body"`
	Status int    `json:"status"`
	Answer any    `json:"answer"`
}

// The program opens stores that earlier programs wrote, with real queries and feedback, without losing anything: declarations, traffic rules with
// labels, pins and rollbacks, history, learned states of every context, and the resulting answers. It then changes the store and still finds
// everything after a restart.
func TestStoresOfEarlierPrograms(t *testing.T) {
	t.Parallel()
	if *storeWriter != "" {
		writeStores(t)
	}
	stores, err := filepath.Glob(filepath.Join(storesDir, "*", "*", "witness.json"))
	if err != nil || len(stores) < 2 {
		t.Fatalf("%s has %d stores (%v): expected two of each program", storesDir, len(stores), err)
	}
	for _, file := range stores {
		folder := filepath.Dir(file)
		name, err := filepath.Rel(storesDir, folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want witness
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			s := restoreStore(t, folder)
			g := s.serve()
			s.wantNothingLost(g, &want)

			// The store accepts changes and keeps them together with the old content.
			g.apply(number("later", "echo"), function("later-f", "later", "slo: 60s"))
			g.awaitServing("later@1")
			for _, f := range []string{"learns", "votes"} {
				g.teach(f, 5000, 3, `,"context":"later"`, itself)
				g.saved(f)
			}
			more := s.witness(g, nil)
			if len(more.History) != len(want.History)+2 || more.Revision <= want.Revision {
				t.Errorf("after two more objects there are %d events, and revision %v: there were %d, and revision %v", len(more.History), more.Revision, len(want.History), want.Revision)
			}
			g.stop()
			g = s.serve()
			more.Answers = want.Answers
			s.wantNothingLost(g, more)
			// The rollback is still in force, and a promotion ends it.
			g.must("promote", "m@3", "--wait")
			g.awaitServing("m@3")
		})
	}
}

// store is a store with everything a gateway needs to run on it.
type store struct {
	t      *testing.T
	server *redistest.Server // nil: a data directory
	data   string
	log    string // inference log
	models string // watched directory
	had    string // files of the data directory before a gateway used it
}

// newStore makes an empty store.
func newStore(t *testing.T, shared bool) *store {
	t.Helper()
	s := &store{t: t, data: newDir(t), models: newDir(t)}
	s.log = filepath.Join(s.data, "log")
	if shared {
		s.server = redistest.Start(t, redistest.Config{})
	}
	watchable(t, s.models, "w", "1", "echo")
	watchable(t, s.models, "w", "2", "noop")
	return s
}

// files returns the names of the files in the data directory that keep something, with their content except for state.db. The
// gateway's lock, which has a process id, keeps nothing.
func (s *store) files() string {
	s.t.Helper()
	entries, err := os.ReadDir(s.data)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Name() == "gateway.lock" {
			continue
		}
		if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".gz") {
			continue
		}
		text := e.Name()
		if e.Name() != "state.db" {
			content, err := os.ReadFile(filepath.Join(s.data, e.Name()))
			if err != nil {
				s.t.Fatal(err)
			}
			text += "=" + string(content)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// restoreStore makes a copy of a store in testdata.
func restoreStore(t *testing.T, folder string) *store {
	t.Helper()
	commands, err := os.ReadFile(filepath.Join(folder, "redis.txt"))
	if err == nil {
		s := newStore(t, true)
		s.server.Restore(string(commands))
		return s
	}
	s := newStore(t, false)
	if err := os.CopyFS(s.data, os.DirFS(filepath.Join(folder, "data"))); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(filepath.Join(s.data, "state.db.gz"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.data, "state.db", string(unpack(t, packed)))
	s.had = s.files()
	return s
}

// serve starts a gateway on the store. The worker is on its PATH, because the declared models name it without a directory.
func (s *store) serve() *gateway {
	s.t.Helper()
	args := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--models", s.models}
	if s.server != nil {
		args = append(args, "--store", s.server.URL())
	} else {
		args = append(args, "--data-dir", s.data, "--inference-log", s.log)
	}
	g := launchWith(s.t, newDir(s.t), []string{"PATH=" + filepath.Dir(programs.worker) + ":" + os.Getenv("PATH")}, args...)
	g.ready()
	return g
}

// witness collects what a gateway reports of its store, and its answers to the requests.
func (s *store) witness(g *gateway, requests []asked) *witness {
	s.t.Helper()
	w := &witness{Revision: float64(g.itself().Revision), Learned: map[string]any{}}
	export := g.xebec("export", "-o", "json", "--show-secrets")
	if export.status == 2 { // a program from before the flag shows all
		export = g.xebec("export", "-o", "json")
	}
	export.wants(s.t, "export", 0, "", "")
	w.Export = s.parse(export.out).([]any)
	w.History = s.parse(toJSON(s.t, g.history(""))).([]any)
	w.Functions = s.specs(g, "functions")
	w.Traffic = s.specs(g, "traffic")
	for name := range w.Functions.(map[string]any) {
		w.Learned[name] = s.learned(g, name)
	}
	for _, r := range requests {
		w.Answers = append(w.Answers, s.ask(g, r))
	}
	if s.server == nil {
		for line := range strings.Lines(g.must("replay", "--print", s.log)) {
			w.Logged = append(w.Logged, s.parse(line))
		}
	}
	return w
}

func (s *store) parse(text string) (v any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.t.Fatalf("%s: %.300s", err, text)
	}
	return v
}

// specs returns the specs and revisions of all functions or traffic rules by name.
func (s *store) specs(g *gateway, kind string) any {
	s.t.Helper()
	status, body := g.fetch(bounded(s.t), "http://"+g.admin+"/v1/"+kind)
	if status != 200 {
		s.t.Fatalf("%s: %d %s", kind, status, body)
	}
	all := map[string]any{}
	for _, o := range s.parse(body).(map[string]any)[kind].([]any) {
		o := o.(map[string]any)
		if o["revision"] == 0.0 { // not declared
			continue
		}
		spec := o["spec"].(map[string]any)
		name, ok := spec["name"].(string)
		if !ok {
			name = spec["Name"].(string)
		}
		all[name] = map[string]any{"spec": spec, "revision": o["revision"]}
	}
	return all
}

// learned returns what a function's policy has learned, globally and for the contexts in memory.
func (s *store) learned(g *gateway, function string) any {
	s.t.Helper()
	status, body := g.fetch(bounded(s.t), "http://"+g.admin+"/v1/describe/function/"+function)
	d, err := decode[api.FunctionDescription](body)
	if err != nil || status != 200 {
		s.t.Fatalf("function %s: %d %s, %v", function, status, body, err)
	}
	policy := d.Function.Policy
	if policy == nil || !policy.Learns { // its counts are not stored
		return map[string]any{"contexts": map[string]any{}}
	}
	rows := func(all []api.CandidateLearning) map[string]any {
		of := map[string]any{}
		for _, c := range all {
			of[c.Ref] = map[string]any{"model": c.Model, "count": c.Count, "mean_loss": c.MeanLoss, "weight": c.Weight}
		}
		return of
	}
	contexts := map[string]any{}
	for _, c := range policy.Contexts {
		contexts[c.Context] = rows(c.Candidates)
	}
	return map[string]any{"name": policy.Name, "candidates": rows(policy.Candidates), "contexts": contexts}
}

// ask sends a request and returns the parts of the answer that must not change.
func (s *store) ask(g *gateway, r asked) asked {
	s.t.Helper()
	a := g.json(r.Path, r.Body)
	all, ok := s.parse(string(a.Body)).(map[string]any)
	if !ok {
		s.t.Fatalf("%s is answered by %v", r.Path, a)
	}
	kept := map[string]any{}
	for _, field := range []string{"output", "models", "default", "code", "model_version", "outputs"} {
		if value, found := all[field]; found {
			kept[field] = value
		}
	}
	return asked{r.Path, r.Body, a.Status, kept}
}

// wantNothingLost checks that the gateway reports everything in want. It waits for versions to load, and for learned states, which the gateway
// reads when their context is first asked for.
func (s *store) wantNothingLost(g *gateway, want *witness) {
	s.t.Helper()
	for i := range want.Answers {
		r := &want.Answers[i]
		var missing []string
		g.await(fmt.Sprintf("%s %s to be answered by %d %v", r.Path, r.Body, r.Status, r.Answer), func(ctx context.Context) (bool, string) {
			got := s.ask(g, *r)
			missing = lost("answer", r.Answer, got.Answer)
			return got.Status == r.Status && len(missing) == 0, fmt.Sprint(got.Status, missing)
		})
	}
	for name, learned := range want.Learned {
		g.await("function "+name+" to have its learned state", func(ctx context.Context) (bool, string) {
			for c := range learned.(map[string]any)["contexts"].(map[string]any) {
				if a, err := g.tryAsk(ctx, name, 7, `,"context":`+toJSON(s.t, c)); err != nil || a.Status != 200 {
					return false, fmt.Sprint(a, err)
				}
			}
			missing := lost(name, learned, s.learned(g, name))
			return len(missing) == 0, strings.Join(missing, "\n")
		})
	}
	got := s.witness(g, nil)
	got.History = got.History[max(0, len(got.History)-len(want.History)):]
	for _, part := range []struct {
		what      string
		want, got any
	}{
		{"revision", want.Revision, got.Revision}, {"export", want.Export, got.Export}, {"functions", want.Functions, got.Functions},
		{"traffic", want.Traffic, got.Traffic}, {"history", want.History, got.History}, {"inference log", want.Logged, got.Logged[:min(len(got.Logged), len(want.Logged))]},
	} {
		if missing := lost(part.what, part.want, part.got); len(missing) > 0 {
			s.t.Errorf("this program does not report these parts of the store:\n%s", strings.Join(missing, "\n"))
		}
	}
	if files := s.files(); s.server == nil && files != s.had {
		s.t.Errorf("the data directory has the files %s: expected %s", files, s.had)
	}
	if sources := g.itself().Sources; slices.ContainsFunc(sources, func(s api.SourceStatus) bool { return len(s.Problems) > 0 }) {
		s.t.Errorf("the gateway has problems with its store: %+v", sources)
	}
}

// lost lists what is in want but not in got. Objects in got may have more members, lists may not. Numbers may differ in their last bits.
func lost(at string, want, got any) (missing []string) {
	differ := func() []string {
		return []string{fmt.Sprintf("%s: there was %s, and there is %s", at, brief(want), brief(got))}
	}
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return differ()
		}
		for name, value := range want {
			if other, found := got[name]; found {
				missing = append(missing, lost(at+"."+name, value, other)...)
			} else {
				missing = append(missing, fmt.Sprintf("%s.%s: there was %s, and there is nothing", at, name, brief(value)))
			}
		}
		slices.Sort(missing)
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return differ()
		}
		for i := range want {
			missing = append(missing, lost(fmt.Sprintf("%s[%d]", at, i), want[i], got[i])...)
		}
	case float64:
		if got, ok := got.(float64); !ok || math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
			return differ()
		}
	default:
		if got != want {
			return differ()
		}
	}
	return missing
}

// A gateway keeps serving while a later program converts its Redis database, and reports why it cannot save. Once the database has the old format
// again, for example from a backup, the gateway writes everything that it has learned.
func TestStoreIsConvertedByALaterProgram(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	g := serve(t, "--store", server.URL())
	g.apply(threeModels("exp3"))
	g.teach("f", 1, 5, "", itself)
	g.saved("f")
	formats := func(value string) {
		server.Restore(fmt.Sprintf("SET \"xebec:format\" %q\nSET \"xebec:objects:format\" %q\n", value, value))
	}
	for value, says := range map[string]string{"1>2": "has begun to convert the store", "2": `the store has format \"2\"`} {
		formats(value)
		status, answer, err := g.applyHTTP(bounded(t), function("more", "right", "slo: 60s"))
		if err != nil || status != 503 || !strings.Contains(answer, says) || !strings.Contains(answer, "or another database") {
			t.Errorf("with format %s apply is answered by %d %s, %v: expected 503 that says %q", value, status, answer, err, says)
		}
		g.teach("f", 10, 5, "", itself)
		g.awaitLearned("f", "the store to be unavailable", func(p api.PolicyStatus) bool { return p.Store.Away && p.Store.Pending > 0 })
		formats("1")
		if p := g.saved("f"); p.Store.Lost != 0 {
			t.Errorf("%d updates were dropped", p.Store.Lost)
		}
	}
	g.apply(function("more", "right", "slo: 60s"))
	if n := total(g.learned("f").Candidates); n < 14 || n > 15 {
		t.Errorf("the gateway has counted %v losses: expected 15", n)
	}
}

func brief(v any) string {
	text := fmt.Sprint(v)
	return text[:min(len(text), 300)]
}

// The comparison finds what is missing or different, and nothing else.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		want, got string
		missing   int
	}{
		{`{"a":[1,"x",null,true]}`, `{"a":[1.00000000000001,"x",null,true],"b":2}`, 0},
		{`{"a":1,"b":{"c":2}}`, `{"b":{}}`, 2},
		{`{"a":[1,2]}`, `{"a":[1,2,3]}`, 1},
		{`{"a":[1,2]}`, `{"a":{"0":1}}`, 1},
		{`{"a":1}`, `{"a":"1"}`, 1},
		{`{"a":1}`, `{"a":1.001}`, 1},
		{`{"a":""}`, `{"a":null}`, 1},
	} {
		want, err := decode[any](c.want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode[any](c.got)
		if err != nil {
			t.Fatal(err)
		}
		if missing := lost("it", want, got); len(missing) != c.missing {
			t.Errorf("compared with %s, %s lacks %q: expected %d parts", c.want, c.got, missing, c.missing)
		}
	}
}

// pack compresses a file without its name and time, so that the same content gives the same bytes.
func pack(t *testing.T, content []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func unpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
