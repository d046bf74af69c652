package apptest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// declarer declares one function after the other over model m, each with its twin, and records the gateway's answers.
type declarer struct {
	mu       sync.Mutex
	taken    []string
	refused  []string          // "nothing was changed"
	unknown  []string          // 503, and the change may have been made
	messages map[string]string // of those that failed, by function
	stopped  atomic.Bool
	done     chan struct{}
}

func (g *gateway) keepDeclaring(prefix string) *declarer {
	d := &declarer{messages: map[string]string{}, done: make(chan struct{})}
	ctx := bounded(g.t)
	go func() {
		defer close(d.done)
		for i := 0; !d.stopped.Load(); i++ {
			name := fmt.Sprintf("%s-%d", prefix, i)
			status, answer, err := g.applyHTTP(ctx, function(name, "m", "slo: 60s")+function(twin(name), "m"))
			d.mu.Lock()
			switch {
			case err == nil && status == 200:
				d.taken = append(d.taken, name)
			case err == nil && status == 503 && strings.Contains(answer, "nothing was changed"):
				d.refused = append(d.refused, name)
				d.messages[name] = answer
			case err == nil && status == 503 && strings.Contains(answer, "not known") && strings.Contains(answer, "apply the same again"):
				d.unknown = append(d.unknown, name)
				d.messages[name] = answer
			default:
				g.t.Errorf("apply of %s is answered by %d %s %v", name, status, answer, err)
				d.mu.Unlock()
				return
			}
			d.mu.Unlock()
		}
	}()
	g.t.Cleanup(d.stop)
	return d
}

func (d *declarer) stop() {
	d.stopped.Store(true)
	<-d.done
}

func (d *declarer) counts() (taken, not int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.taken), len(d.refused) + len(d.unknown)
}

// goesOn waits until more changes are accepted, or fail.
func (d *declarer) goesOn(g *gateway, taken bool) {
	g.t.Helper()
	yes, no := d.counts()
	g.await(fmt.Sprintf("applies to end with taken %v", taken), func(context.Context) (bool, string) {
		y, n := d.counts()
		return taken && y > yes+1 || !taken && n > no, fmt.Sprintf("%d taken, %d not", y, n)
	})
}

// check compares the recorded answers with what a gateway has.
func (d *declarer) check(g *gateway) {
	g.t.Helper()
	all := exported(bounded(g.t), g)
	has := func(name string) bool { return strings.Contains(all, "name: "+name+"\n") }
	for _, name := range d.taken {
		if !has(name) {
			g.t.Errorf("function %s was acknowledged but is not there", name)
		}
	}
	for _, name := range d.refused {
		if has(name) || has(twin(name)) {
			g.t.Errorf("function %s is there, but its declaration was answered by %s", name, d.messages[name])
		}
	}
	for _, name := range append(d.taken, d.unknown...) {
		if has(name) != has(twin(name)) {
			g.t.Errorf("only one of function %s and its twin is there", name)
		}
	}
}

// The Redis server is killed, and stopped, while functions are declared and queried. A change meanwhile is refused with
// what to do, or reported as possibly made. No query fails. Afterwards every acknowledged change is there, and no refused
// one.
func TestApplyWhileRedisFails(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	a.apply(number("m", "echo", "cache: off"), function("f", "m", "slo: 60s"))
	b.await("the function", answers(b, "f", 7, "m@1"))
	asking := []func(){a.keepAsking("f"), b.keepAsking("f")}
	d := a.keepDeclaring("x")
	for what, fault := range map[string]struct{ begin, end func() }{"killed": {s.Kill, s.Restart}, "stopped": {s.Pause, s.Resume}} {
		d.goesOn(a, true)
		fault.begin()
		d.goesOn(a, false)
		d.goesOn(a, false)
		a.xebec("apply", "-f", manifest(t, function("late", "m"))).wants(t, what, 1, "", s.Addr())
		if text := a.must("describe", "function", "f"); !strings.Contains(text, "m@1") {
			t.Errorf("%s: describe says\n%s", what, text)
		}
		fault.end()
		d.goesOn(a, true)
	}
	d.stop()
	for _, stop := range asking {
		stop()
	}
	a.must("apply", "-f", manifest(t, function("late", "m", "slo: 60s")))
	awaitSame(a, b)
	third := serve(t, "--store", s.URL())
	awaitSame(a, third)
	for _, g := range []*gateway{a, b, third} {
		d.check(g)
	}
	yes, no := d.counts()
	t.Logf("%d applies were accepted, %d failed (%d of them with an unknown end)", yes, no, len(d.unknown))
	seen := map[string]bool{}
	for _, m := range d.messages {
		if i := strings.Index(m, s.Addr()); i < 0 {
			t.Errorf("an apply is answered by %s: expected the store's name", m)
		} else if !seen[m] && len(seen) < 4 {
			seen[m] = true
			t.Log(m)
		}
	}
}

// A Redis server without persistence is restarted, and is empty. Serving is not affected, the gateways restore the
// declarations, and a gateway that starts later finds them.
func TestRedisLosesEverything(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{})
	a, b := serve(t, "--store", s.URL()), serve(t, "--store", s.URL())
	a.apply(number("m", "echo", "cache: off"), version(number("m", "noop"), "2"), traffic("m", `serving: "1"`, `labels: {stable: "1"}`), function("f", "m", "slo: 60s"))
	b.await("the function", answers(b, "f", 7, "m@1"))
	all := awaitSame(a, b)
	asking := []func(){a.keepAsking("f"), b.keepAsking("f")}
	s.Restart()
	third := serve(t, "--store", s.URL())
	third.awaitExport("the store to have all declarations again", all)
	if now := awaitSame(a, b, third); now != all {
		t.Errorf("before the restart the export was\n%s\nand after it\n%s", all, now)
	}
	third.await("the third gateway to serve", answers(third, "f", 7, "m@1"))
	a.must("apply", "-f", manifest(t, function("g", "m@stable", "slo: 60s")))
	b.await("a new function", answers(b, "g", 7, "m@1"))
	for _, stop := range asking {
		stop()
	}
	if events := a.history("m"); len(events) == 0 || !strings.Contains(events[0].Action+events[0].Detail, "restored") {
		t.Errorf("the history says %+v: expected an event that the model was restored", events)
	}
}

// command sends a command to a Redis server and returns the first line of the answer.
func command(t *testing.T, s *redistest.Server, text string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(bounded(t), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", text); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	for range strings.Count(text, "\r\n") {
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := answers.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

// allReplicated answers :1 if a replica has all that the server has. WAIT is about writes of its own connection, so that needs one.
const allReplicated = "SET xebec-apptest-sync 1\r\nWAIT 1 100"

// replicate makes one server a replica of another and waits until it has all its data.
func replicate(t *testing.T, g *gateway, primary, replica *redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(primary.Addr(), ":")
	if answer := command(t, replica, "REPLICAOF "+host+" "+port); !strings.HasPrefix(answer, "+OK") {
		t.Fatal(answer)
	}
	g.await("the replica to be in sync", func(context.Context) (bool, string) {
		n := command(t, primary, allReplicated)
		return n == ":1", n
	})
}

// The primary becomes a replica while functions are declared, because another server was promoted. Changes are refused
// with what to do, and writes to the new primary appear. When the old server is the primary again the gateways continue
// with every change that either server acknowledged.
func TestRedisFailsOver(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	other := redistest.Start(t, redistest.Config{AppendOnly: true})
	a.apply(number("m", "echo", "cache: off"), function("f", "m", "slo: 60s"))
	b.await("the function", answers(b, "f", 7, "m@1"))
	asking := []func(){a.keepAsking("f"), b.keepAsking("f")}
	d := a.keepDeclaring("x")
	d.goesOn(a, true)
	replicate(t, a, s, other)
	d.goesOn(a, true)
	// Asynchronous replication may lose the last acknowledged changes, so the test waits for the replica before it
	// switches, as operators should.
	d.stop()
	a.await("the replica to have all changes", func(context.Context) (bool, string) {
		n := command(t, s, allReplicated)
		return n == ":1", n
	})
	if answer := command(t, other, "REPLICAOF NO ONE"); !strings.HasPrefix(answer, "+OK") {
		t.Fatal(answer)
	}
	replicate(t, a, other, s)
	r := a.xebec("apply", "-f", manifest(t, function("refused", "m")))
	if r.wants(t, "apply while the store is a replica", 1, "", "it is a replica: name the primary"); !strings.Contains(r.err, "nothing was changed") {
		t.Errorf("apply says %s", r.err)
	}
	c := serve(t, "--store", other.URL())
	c.must("apply", "-f", manifest(t, function("new", "m", "slo: 60s")), "--wait")
	a.await("a function declared at the new primary", answers(a, "new", 7, "m@1"))
	d.check(c)

	if answer := command(t, s, "REPLICAOF NO ONE"); !strings.HasPrefix(answer, "+OK") {
		t.Fatal(answer)
	}
	again := a.keepDeclaring("y")
	again.goesOn(a, true)
	again.stop()
	for _, stop := range asking {
		stop()
	}
	all := awaitSame(a, b)
	d.check(b)
	again.check(b)
	if !strings.Contains(all, "name: new\n") || strings.Contains(all, "name: refused\n") {
		t.Errorf("after the failover the export is\n%s", all)
	}
}

// A replica that lacks the last changes replaces the primary. Acknowledged changes that it lacks still serve, and the
// gateways that know them store them again, which the history says.
func TestOlderReplicaTakesOver(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	other := redistest.Start(t, redistest.Config{AppendOnly: true})
	a.apply(number("m", "noop"), function("f", "m", "slo: 60s"))
	replicate(t, a, s, other)
	if answer := command(t, other, "REPLICAOF NO ONE"); !strings.HasPrefix(answer, "+OK") { // it gets no changes from here on
		t.Fatal(answer)
	}
	a.apply(version(number("m", "echo", "cache: off"), "2"), traffic("m", `serving: "2"`, `labels: {stable: "2"}`), function("f", "m", "slo: 59s"), function("g", "m@stable", "slo: 60s"))
	b.await("the last changes", answers(b, "g", 7, "m@2"))
	a.await("version 2", answers(a, "g", 7, "m@2"))
	all := awaitSame(a, b)
	asking := []func(){a.keepAsking("f"), a.keepAsking("g"), b.keepAsking("f"), b.keepAsking("g")}
	replicate(t, a, other, s) // the server at the gateways' address now has the replica's data
	if answer := command(t, s, "REPLICAOF NO ONE"); !strings.HasPrefix(answer, "+OK") {
		t.Fatal(answer)
	}
	third := serve(t, "--store", s.URL())
	third.awaitExport("the lost changes to be in the store again", all)
	if now := awaitSame(a, b, third); now != all {
		t.Errorf("before the takeover the export was\n%s\nand after it\n%s", all, now)
	}
	third.await("version 2 at a gateway that started later", answers(third, "g", 7, "m@2"))
	a.must("apply", "-f", manifest(t, function("h", "m", "slo: 60s")))
	b.await("a new function", answers(b, "h", 7, "m@2"))
	for _, stop := range asking {
		stop()
	}
	if text := strings.Join(steps(third.history("m")), ", "); !strings.Contains(text, "restored m@2") || strings.Contains(text, "restored m@1") {
		t.Errorf("the history says: %s", text)
	}
}

// A gateway that starts while its Redis server is away serves what --config declares. When the server is back this is
// stored, and what the store had before is loaded too.
func TestGatewayStartsBeforeRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{AppendOnly: true})
	first := serve(t, "--store", s.URL())
	first.apply(number("old", "noop"), function("before", "old", "slo: 60s"))
	first.stop()
	s.Kill()
	g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", s.URL(), "--config", manifest(t, number("m", "echo"), function("f", "m", "slo: 60s")))
	g.await("the gateway's addresses", g.readAddresses)
	g.awaitReplicas("m", 1)
	for _, port := range []string{g.functions, g.admin} {
		if status, body := g.fetch(bounded(t), "http://"+port+"/readyz"); status != 503 || !strings.Contains(body, "has not been read yet") {
			t.Errorf("a gateway that has not read its store says: %d %s", status, body)
		}
	}
	// What the store has is not known, so a name that is unknown now may exist.
	for _, path := range []string{"/before/predict", "/before/feedback", "/v2/models/old/infer", "/v2/models/old"} {
		ask := func() (int, string) {
			a := g.json(path, `{"input":1,"label":1,"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[5]}]}`)
			return a.Status, a.Header.Get("Retry-After") + " " + string(a.Body)
		}
		if path == "/v2/models/old" {
			ask = func() (int, string) { return g.fetch(bounded(t), "http://"+g.functions+path) }
		}
		if status, body := ask(); status != 503 || !strings.Contains(body, "is not known yet") {
			t.Errorf("%s: %d %s: expected 503, because the name may be in the store", path, status, body)
		}
	}
	if m := g.metrics().samples; m["xebec_policy_store_away{}"] != 1 || m["xebec_policy_store_errors_total{}"] < 1 {
		t.Errorf("without the store the metrics say %v, %v errors", m["xebec_policy_store_away{}"], m["xebec_policy_store_errors_total{}"])
	}
	g.xebec("describe", "gateway").wants(t, "describe a gateway without its store", 0, "away: ", "")
	// Neither does the admin port say that such a name is not declared, and an export does not replace a backup by a part of it.
	backup := filepath.Join(t.TempDir(), "backup.yaml")
	if err := os.WriteFile(backup, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.xebec("export", "--file", backup).wants(t, "an export without the store", 1, "", "has not been read yet")
	if text, err := os.ReadFile(backup); err != nil || string(text) != "kept" {
		t.Errorf("the backup is now %q, %v", text, err)
	}
	for _, args := range [][]string{{"get", "models", "old"}, {"get", "functions", "before"}, {"get", "traffic", "old"}, {"describe", "model", "old"}, {"describe", "function", "before"}, {"logs", "old"}} {
		g.xebec(args...).wants(t, strings.Join(args, " "), 1, "", "is not known yet")
	}
	for _, list := range []string{"models", "functions", "traffic", "replicas"} {
		r := g.xebec("get", list, "-o", "json")
		r.wants(t, "get "+list, 0, "", "warning: more may be declared: the store")
		if n := strings.Count(r.err, "warning"); n != 1 {
			t.Errorf("get %s warns %d times: %s", list, n, r.err)
		}
	}
	if a := g.ask("f", 5, ""); a.number() != 5 {
		t.Errorf("without its store the gateway answers %v", a)
	}
	r := g.xebec("apply", "-f", manifest(t, function("refused", "m")))
	if r.wants(t, "apply without a store", 1, "", "nothing was changed"); !strings.Contains(g.logText(), "the store does not answer") {
		t.Errorf("the log says\n%s", g.logText())
	}
	s.Restart()
	g.ready()
	g.await("the function from the store", answers(g, "before", 0, "old@1"))
	g.await("the metrics to say that the store answers", func(context.Context) (bool, string) {
		away := g.metrics().samples["xebec_policy_store_away{}"]
		return away == 0, fmt.Sprint(away)
	})
	if a := g.json("/none/predict", `{"input":1}`); a.Status != 404 {
		t.Errorf("a function that does not exist is answered by %v: expected 404, because the store has been read", a)
	}
	other := serve(t, "--store", s.URL())
	other.await("what --config declares to be in the store", answers(other, "f", 5+2, "m@1"))
	all := awaitSame(g, other)
	for _, name := range []string{"f", "m", "old", "before"} {
		if !strings.Contains(all, "name: "+name+"\n") {
			t.Errorf("%s is not in the export:\n%s", name, all)
		}
	}
	if events := other.history("f"); len(events) != 1 || !strings.HasPrefix(events[0].By, "--config") {
		t.Errorf("the history of what --config declares is %+v", events)
	}
	g.must("apply", "-f", manifest(t, function("later", "m", "slo: 60s")))
}
