package apptest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// callAdmin sends a request to the admin port, as a program other than our command line does.
func (g *gateway) callAdmin(ctx context.Context, method, path, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.admin+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/yaml")
	}
	res, err := g.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// applyHTTP applies a manifest and returns the answer.
func (g *gateway) applyHTTP(ctx context.Context, text string) (status int, answer string, err error) {
	return g.callAdmin(ctx, http.MethodPost, "/v1/apply", text)
}

// history returns the output of `xebec history`, newest first. An empty name means all objects.
func (g *gateway) history(name string) []api.HistoryEvent {
	g.t.Helper()
	args := []string{"history", "-o", "json", "--limit", "1000"}
	if name != "" {
		args = append(args, name)
	}
	h, err := decode[api.History](g.must(args...))
	if err != nil {
		g.t.Fatal(err)
	}
	return h.Events
}

// itself returns the gateway as `xebec describe gateway` shows it.
func (g *gateway) itself() api.GatewayStatus {
	g.t.Helper()
	s, err := decode[api.GatewayStatus](g.must("describe", "gateway", "-o", "json"))
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// steps returns what the events did, oldest first, for example "promoted m@2".
func steps(events []api.HistoryEvent) (all []string) {
	for _, e := range slices.Backward(events) {
		name := e.Name
		if e.Version != "" {
			name += "@" + e.Version
		}
		all = append(all, e.Action+" "+name)
	}
	return all
}

// A killed gateway that is started again with only its data directory has everything that it had: models, functions,
// traffic rules and labels, a promotion and a rollback, learned states, and the same history, byte for byte.
func TestEverythingDeclaredSurvivesKill(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", newDir(t)}
	g := serve(t, args...)
	m := number("m", "noop")
	g.apply(m, function("f", "m", "slo: 60s"))
	g.apply(version(number("m", "echo"), "2"))
	g.awaitServing("m@2")
	g.must("traffic", "m", "--label", "tried=2", "--label", "old=1", "--serving", "1")
	g.apply(function("tried", "m@tried", "slo: 60s"))
	g.must("promote", "m@2", "--wait")
	g.apply(version(m, "3"))
	g.must("promote", "m@3", "--wait")
	g.must("rollback", "m", "--reason", "takes everything for nothing", "--wait")
	g.awaitServing("m@2")
	g.apply(function("gone", "m", "slo: 60s"))
	g.must("delete", "function", "gone")

	g.apply(number("left", "noop"), number("good", "echo"), function("learns", "left, good", "slo: 60s", "policy: {name: exp3, eta: 0.3}"))
	g.teach("learns", 1, 40, "", itself)
	before := g.saved("learns")
	export, history, revision := g.must("export"), g.must("history", "-o", "json", "--limit", "1000"), g.itself().Revision
	text := strings.Join(steps(g.history("m")), "\n")
	for _, step := range []string{"created m@1", "created m@2", "promoted m@2", "created m@3", "rolled back m@2"} {
		_, rest, found := strings.Cut(text, step)
		if !found {
			t.Errorf("the history lacks, in this order, %q:\n%s", step, strings.Join(steps(g.history("m")), "\n"))
		}
		text = rest
	}
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)

	again := serve(t, args...)
	if now := again.must("export"); now != export {
		t.Errorf("before the kill the export was\n%s\nand after it\n%s", export, now)
	}
	if now := again.must("history", "-o", "json", "--limit", "1000"); now != history {
		t.Errorf("before the kill the history was\n%s\nand after it\n%s", history, now)
	}
	if now := again.itself(); now.Revision != revision || revision == 0 || len(now.Sources) != 1 || len(now.Sources[0].Problems) != 0 {
		t.Errorf("before the kill the revision was %d, and after it the gateway has %+v", revision, now)
	}
	again.awaitServing("m@2")
	for f, want := range map[string]string{"f": "m@2", "tried": "m@2"} {
		if a := again.ask(f, 7, ""); !slices.Equal(a.Models, []string{want}) || a.number() != 7 {
			t.Errorf("after the kill %s answers %v: expected 7 of %s", f, a, want)
		}
	}
	if a := again.ask("gone", 7, ""); a.Status != 404 {
		t.Errorf("a deleted function answers %v after the kill", a)
	}
	if a := again.json("/v2/models/m/versions/old/infer", `{"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[7]}]}`); a.Status != 200 || !strings.Contains(string(a.Body), `"data":[0]`) {
		t.Errorf("the label of the version that does not serve answers %v after the kill", a)
	}
	after := again.awaitLearned("learns", "the learned states", func(p api.PolicyStatus) bool { return total(p.Candidates) > 0 })
	for i, c := range before.Candidates {
		if got := after.Candidates[i]; got.Count != c.Count || got.MeanLoss != c.MeanLoss || got.Weight != c.Weight {
			t.Errorf("before the kill the candidate was %+v, and after it %+v", c, got)
		}
	}

	// The rollback is still in force, and a newer version ends it.
	if st, err := again.trafficOf(bounded(t), "m"); err != nil || st.Spec.Rollback == nil || st.Spec.Rollback.From != "3" || st.Spec.Rollback.To != "2" {
		t.Errorf("after the kill the traffic rules are %+v (%v): expected the rollback from 3 to 2", st, err)
	}
	again.must("promote", "m@3", "--wait")
	again.awaitServing("m@3")
	if a := again.ask("f", 7, ""); a.number() != 0 || a.Models[0] != "m@3" {
		t.Errorf("after another promotion f answers %v", a)
	}
}

// ledger records the gateway's answers to changes of several clients, which says what must exist after a kill.
type ledger struct {
	mu      sync.Mutex
	there   map[string]bool // acknowledged
	gone    map[string]bool // deletion acknowledged
	unsure  map[string]bool // no answer
	answers int
}

// twin is the name of a function that is declared together with another one and never deleted.
func twin(name string) string { return name + "-twin" }

// work declares functions over model m, each with its twin, and deletes some of them, until the gateway has ended.
func (l *ledger) work(ctx context.Context, g *gateway, client string) error {
	for i := 0; ; i++ {
		name := fmt.Sprintf("f-%s-%d", client, i)
		status, answer, err := g.applyHTTP(ctx, function(name, "m", "slo: 60s")+function(twin(name), "m"))
		if err == nil && status != 200 {
			return fmt.Errorf("apply of %s is answered by %d %s", name, status, answer)
		}
		l.note(name, true, err)
		if err != nil {
			return nil
		}
		if i%3 == 2 {
			victim := fmt.Sprintf("f-%s-%d", client, i-1)
			status, answer, err := g.callAdmin(ctx, http.MethodDelete, "/v1/functions/"+victim, "")
			if err == nil && status != 200 {
				return fmt.Errorf("delete of %s is answered by %d %s", victim, status, answer)
			}
			l.note(victim, false, err)
			if err != nil {
				return nil
			}
		}
	}
}

func (l *ledger) note(name string, there bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.there, name)
	switch {
	case err != nil:
		l.unsure[name] = true
		return
	case there:
		l.there[name] = true
	default:
		l.gone[name] = true
	}
	l.answers++
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers
}

// check compares what a gateway has with what was acknowledged.
func (l *ledger) check(t *testing.T, g *gateway) {
	t.Helper()
	found := map[string]bool{}
	for line := range strings.Lines(g.must("get", "functions", "-o", "yaml")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "name: "); ok {
			found[name] = true
		}
	}
	for name := range l.there {
		if !found[name] {
			t.Errorf("function %s was acknowledged but is not there after the kill", name)
		}
	}
	for name := range found {
		if strings.HasSuffix(name, twin("")) {
			continue
		}
		if !found[twin(name)] {
			t.Errorf("after the kill function %s is there, but its twin from the same change is not", name)
		}
		if l.gone[name] {
			t.Errorf("the deletion of %s was acknowledged, but it is there after the kill", name)
		}
		if !l.there[name] && !l.unsure[name] {
			t.Errorf("function %s is there after the kill, but no client declared it", name)
		}
	}
	for name := range l.unsure { // from now on the present state is known
		delete(l.unsure, name)
		if found[name] {
			l.there[name] = true
		} else {
			l.gone[name] = true
		}
	}
}

// Acknowledged changes, deletions included, survive SIGKILL at any moment, round after round on the same file. After each
// kill the gateway starts and serves.
func TestAcknowledgedAppliesSurviveKills(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", newDir(t)}
	l := &ledger{there: map[string]bool{}, gone: map[string]bool{}, unsure: map[string]bool{}}
	g := serve(t, args...)
	g.apply(number("m", "echo"))
	const rounds, clients = 4, 3
	for round := range rounds {
		var wg sync.WaitGroup
		failed := make(chan error, clients)
		for c := range clients {
			wg.Go(func() { failed <- l.work(bounded(t), g, fmt.Sprintf("%d-%d", round, c)) })
		}
		until := l.count() + 3 + rand.IntN(40)
		g.await("some applies", func(context.Context) (bool, string) {
			select {
			case err := <-failed:
				t.Fatal(err)
			default:
			}
			return l.count() >= until, fmt.Sprint(l.count())
		})
		kill(t, g.cmd.Process.Pid) // while three changes are in flight
		g.gone(-1)
		wg.Wait()
		close(failed)
		for err := range failed {
			if err != nil {
				t.Error(err)
			}
		}
		g = serve(t, args...)
		l.check(t, g)
		if a := g.ask("f-0-0-0", 5, ""); a.number() != 5 {
			t.Errorf("after kill %d a function answers %v", round, a)
		}
	}
	if events := g.history("f-0-0-0"); len(events) != 1 || events[0].Action != "created" {
		t.Errorf("after %d kills the history of a function is %+v", rounds, events)
	}
	t.Logf("%d changes were acknowledged, over %d kills", l.count(), rounds)
}

// Without --data-dir the state is where the XDG base directory specification says. A second gateway there is refused, and
// its log names the first one's process.
func TestDefaultDataDir(t *testing.T) {
	t.Parallel()
	home := newDir(t)
	env := []string{"XEBEC_DATA_DIR=", "XDG_STATE_HOME=" + home, "HOME=/nowhere"}
	start := func() *gateway {
		return launchWith(t, newDir(t), env, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	}
	g := start()
	g.ready()
	g.apply(number("m", "echo"), function("f", "m", "slo: 60s"))
	if s := g.itself(); s.DataDir != filepath.Join(home, "xebec") || s.Store == nil || s.Store.Name != filepath.Join(s.DataDir, "state.db") {
		t.Errorf("describe says of the data directory %+v", s)
	}
	if info, err := os.Stat(filepath.Join(home, "xebec", "state.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v (%v): expected mode 0600", info, err)
	}
	second := start()
	second.gone(1)
	if text := second.logText(); !strings.Contains(text, "another gateway") || !strings.Contains(text, filepath.Join(home, "xebec")) || !strings.Contains(text, fmt.Sprint(g.cmd.Process.Pid)) {
		t.Errorf("the second gateway's log is:\n%s\nexpected that process %d has %s", text, g.cmd.Process.Pid, home)
	}
	file := filepath.Join(home, "xebec", "state.db")
	other := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", newDir(t), "--store", file)
	other.gone(1)
	if text := other.logText(); !strings.Contains(text, fmt.Sprintf("%s is held by process %d", file, g.cmd.Process.Pid)) {
		t.Errorf("with another data directory and the same store file the log is:\n%s", text)
	}
	if a := g.ask("f", 5, ""); a.number() != 5 {
		t.Errorf("the first gateway answers %v", a)
	}
	g.stop()
	g = start()
	g.ready()
	if a := g.ask("f", 6, ""); a.number() != 6 {
		t.Errorf("after a restart f answers %v", a)
	}
}

// An export, of models in several directories, can be applied to another gateway from any directory. The other gateway
// serves the same and exports the same.
func TestExportIsABackup(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for i, name := range []string{"east/double", "west/zero"} {
		writeFile(t, dir, name+"/run.sh", "#!/bin/sh\nexec "+programs.worker+" \"$@\"\n")
		if err := os.Chmod(filepath.Join(dir, name, "run.sh"), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, dir, name+"/queries.jsonl", fmt.Sprintf("{\"input\": 3, \"label\": %d}\n{\"input\": 4, \"label\": %d}\n", 3*(1-i), 4*(1-i)))
		writeFile(t, dir, name+"/xebec.yaml", fmt.Sprintf(`kind: Model
name: %s
inputs:  [{name: input, dtype: int64, shape: []}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {isolation: none, command: [./run.sh, -mode, %s], env: {PLACE: "%s: \"a\" 'b' #c"}}
warmup: {queries: queries.jsonl, repeat: 3}
validate: {queries: queries.jsonl, expect: labels, min_accuracy: 1}
`, filepath.Base(name), []string{"echo", "noop"}[i], name))
	}
	g := serve(t)
	g.xebecIn(dir, "", "deploy", "east/double").wants(t, "deploy", 0, "model double@1 created", "")
	g.xebecIn(dir, "", "deploy", "west/zero").wants(t, "deploy", 0, "model zero@1 created", "")
	g.apply(version(number("zero", "noop"), "2"), function("either", "double, zero@stable", "slo: 60s", "policy: {name: epsilon-greedy, epsilon: 0.25}", "default: 5", "log: {sample: 0.5}"),
		traffic("zero", `versions: {specific: ["1", "2"]}`, `serving: "1"`, `shadow: {version: "2", percent: 12.5}`, `labels: {stable: "1", canary: "2"}`))
	file := filepath.Join(newDir(t), "backup.yaml")
	g.must("export", "--show-secrets", "--file", file)
	exported := g.must("export", "--show-secrets")
	if text, err := os.ReadFile(file); err != nil || string(text) != exported {
		t.Errorf("export --file wrote %s (%v): expected\n%s", text, err, exported)
	}

	again := serve(t)
	again.xebecIn("/", "", "apply", "-f", file, "--wait").wants(t, "apply the backup", 0, "function either created", "")
	if got := again.must("export", "--show-secrets"); got != exported {
		t.Errorf("the export was\n%s\nand after applying it the other gateway exports\n%s", exported, got)
	}
	if got, want := again.must("export", "--show-secrets", "-o", "json"), g.must("export", "--show-secrets", "-o", "json"); got != want {
		t.Errorf("as JSON:\n%s\nexpected\n%s", got, want)
	}
	if a := again.ask("double", 21, ""); a.number() != 21 {
		t.Errorf("the copy's double answers %v", a)
	}
	if a := again.ask("zero", 21, ""); a.number() != 0 || a.Models[0] != "zero@1" {
		t.Errorf("the copy's zero answers %v", a)
	}
	again.xebecIn("/", "", "apply", "-f", file).wants(t, "apply it again", 0, "unchanged", "")
	if n := len(again.history("double")); n != 2 { // the model, the function
		t.Errorf("applying an unchanged export adds %d events", n-2)
	}
	as := again.must("export", "--show-secrets", "-o", "json")
	third := serve(t)
	third.xebecIn("/", as, "apply", "-f", "-", "--wait").wants(t, "apply JSON from stdin", 0, "traffic zero created", "")
	if got := third.must("export", "--show-secrets"); got != exported {
		t.Errorf("after applying JSON from stdin the export is\n%s\nexpected\n%s", got, exported)
	}
}

// A rollback goes to the version that served before, also if that version is only in the history because the gateway was
// killed since.
func TestRollbackAfterKill(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", newDir(t)}
	g := serve(t, args...)
	m := number("m", "noop")
	g.apply(m, version(m, "2"), version(m, "3"), function("f", "m", "slo: 60s"))
	g.must("promote", "m@1", "--wait")
	g.must("promote", "m@3", "--wait")
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)
	g = serve(t, args...)
	g.awaitServing("m@3")
	g.must("rollback", "m", "--wait")
	g.awaitServing("m@1")
	if e := g.history("m")[0]; e.Action != "rolled back" || e.Version != "1" || e.Before != "3" {
		t.Errorf("the rollback in the history is %+v", e)
	}
}
