package apptest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// isTried waits until the new process is tried, and returns its id.
func (u *upgradable) isTried() int {
	u.t.Helper()
	u.logs("serving a share of the connections")
	return u.logsProcess("a process is tried with a share of the connections", 1)
}

// showsRoles checks what both processes say of the trial: the canary on connections that it has got, the old process on the others and on
// the admin port.
func (u *upgradable) showsRoles(canary int) {
	u.t.Helper()
	seen := map[string]bool{}
	u.await("both roles", func(ctx context.Context) (bool, string) {
		u.fresh()
		_, body := u.fetch(ctx, "http://"+u.functions+"/readyz?verbose")
		var ready struct {
			Upgrade api.UpgradeStatus `json:"upgrade"`
		}
		if err := json.Unmarshal([]byte(body), &ready); err != nil {
			return false, body
		}
		want := map[api.UpgradeRole]int{api.UpgradeOld: canary, api.UpgradeCanaryProcess: u.pid}
		if s := ready.Upgrade; want[s.Role] != s.Peer || s.Step != api.UpgradeCanary || s.Share != 0.5 || s.Since.IsZero() {
			u.t.Errorf("/readyz?verbose says %s", body)
		}
		seen[string(ready.Upgrade.Role)] = true
		return len(seen) == 2, body
	})
	if s := u.describedUpgrade(); s == nil || s.Role != api.UpgradeOld || s.Peer != canary || s.Step != api.UpgradeCanary {
		u.t.Errorf("describe gateway shows %+v", s)
	}
}

// fresh makes the next request of the test's client use a new connection.
func (u *upgradable) fresh() { u.client.CloseIdleConnections() }

// learnAcross asks function f on new connections, of which each second one is the canary's, and gives feedback on other ones. Every
// feedback counts, and the same a second time does not.
func (u *upgradable) learnAcross(n int) (ids []uint64) {
	u.t.Helper()
	for range n {
		u.fresh()
		ids = append(ids, *u.ask("f", 7, "").QueryID)
	}
	for _, want := range []string{"counted", "duplicate"} {
		for i := range ids {
			u.fresh()
			id := ids[(i+1)%n] // so that some come to the process that has not answered
			if _, said := u.tell("f", `{"query_id":%d,"label":7}`, id); said.Status != want {
				u.t.Errorf("feedback %d is answered by %+v: expected %s", i, said, want)
			}
		}
	}
	return ids
}

// remembers checks that feedback was taken.
func (u *upgradable) remembers(ids []uint64) {
	u.t.Helper()
	for i, id := range ids {
		u.fresh()
		if _, said := u.tell("f", `{"query_id":%d,"label":7}`, id); said.Status != "duplicate" {
			u.t.Errorf("feedback %d is answered by %+v later", i, said)
		}
	}
	n := float64(len(ids))
	u.awaitLearned("f", "every feedback counts once", func(p api.PolicyStatus) bool { return p.Candidates[1].Count > 0.95*n && p.Candidates[1].Count < n })
}

var canaryLine = regexp.MustCompile(`process \d+ is tried with 50% of the connections, .*: (\d+) connections, \d+ answers, 0 errors`)

// A canary that is as good as the old process takes over. No request fails; connections that it has got stay with it; feedback counts
// once wherever it arrives.
func TestCanaryIsPromoted(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, args ...string) {
		u := serveUpgradable(t, args...)
		l := u.startLoop("g", 2, 20*time.Millisecond)
		wait := u.upgrade("--canary", "50%", "--canary-time", "4s")
		u.showsRoles(u.isTried())
		kept := u.startLoop("g", 4, 20*time.Millisecond)
		ids := u.learnAcross(6)
		if r := u.xebec("apply", "-f", manifest(t, function("late", "right", "slo: 60s"))); r.status == 0 || !strings.Contains(r.err, "taking over") {
			t.Errorf("apply during the canary: status %d %s%s", r.status, r.out, r.err)
		}
		r := wait()
		found := canaryLine.FindStringSubmatch(r.out)
		if r.status != 0 || u.pid == u.cmd.Process.Pid || found == nil || !strings.Contains(r.out, " takes over: 0 of ") {
			t.Fatalf("upgrade: status %d %s%s\n%s", r.status, r.out, r.err, tail(u.logText(), 40))
		}
		if n, _ := strconv.Atoi(found[1]); n < 1 {
			t.Errorf("the canary has got %d connections", n)
		}
		l.more(u, 30)
		u.oldEnds()
		u.remembers(ids)
		l.end(t)
		kept.end(t)
		u.goesOn("after")
	})
}

// A canary whose model fails is sent back, and so is one that has too few requests. Only what it answered itself has failed, what it has learned
// is not lost, and the next upgrade succeeds.
func TestCanaryIsSentBack(t *testing.T) {
	t.Parallel()
	u := serveUpgradable(t, "--drain-timeout", "1s") // idle connections of a canary that is sent back are waited for
	u.awaitReplicas("right", 2)                      // a replica of the old process that starts later would be a bad one
	writeFile(t, u.models, "bad", "")
	l := u.startLoop("g", 2, 20*time.Millisecond)
	wait := u.upgrade("--canary=0.5", "--canary-time=10m", "-o", "json")
	u.isTried()
	if err := os.Remove(filepath.Join(u.models, "bad")); err != nil { // a replica that starts later is a good one
		t.Fatal(err)
	}
	kept := u.startLoop("g", 4, 20*time.Millisecond)
	r := wait()
	if r.status == 0 || !strings.Contains(r.err, "sent back") || !strings.Contains(r.err, "function g: failure rate ") {
		t.Fatalf("upgrade: status %d %s%s\n%s", r.status, r.out, r.err, tail(u.logText(), 40))
	}
	var stages []string
	for _, line := range strings.Split(strings.TrimSpace(r.out), "\n") {
		var step struct {
			PID     int    `json:"pid"`
			Stage   string `json:"stage"`
			Errors  int    `json:"errors"`
			Answers int    `json:"answers"`
			Reason  string `json:"reason"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil || step.PID == 0 || step.Errors > step.Answers || step.Stage != "loading" && (step.Stage == "sent back") != (step.Reason != "") {
			t.Errorf("%s: %v", line, err)
		}
		if len(stages) == 0 || stages[len(stages)-1] != step.Stage {
			stages = append(stages, step.Stage)
		}
	}
	if got := fmt.Sprint(stages); got != "[started loading canary sent back]" {
		t.Errorf("the steps are %s", got)
	}
	ofCanary := func(failure string) bool {
		return strings.HasPrefix(failure, "502 ") && strings.Contains(failure, "model_error")
	}
	l.endBut(t, ofCanary)
	kept.endBut(t, ofCanary)
	if text := u.logText(); !strings.Contains(text, "this process is sent back") {
		t.Error("the new process does not say why it ends")
	}
	l = u.startLoop("g", 2, 20*time.Millisecond)
	l.more(u, 20)
	u.goesOn("after")
	l.end(t)

	wait = u.upgrade("--canary", "50%", "--canary-time", "2s")
	u.await("the second canary", func(context.Context) (bool, string) {
		return strings.Count(u.logText(), "serving a share of the connections") == 2, ""
	})
	ids := u.learnAcross(6)
	if r := wait(); r.status == 0 || !strings.Contains(r.err, "and at least 50 are needed to judge it") {
		t.Fatalf("an upgrade without requests: status %d %s%s", r.status, r.out, r.err)
	}
	for i, id := range ids {
		if _, said := u.tell("f", `{"query_id":%d,"label":7}`, id); said.Status != "duplicate" {
			t.Errorf("feedback %d is answered by %+v after the canary", i, said)
		}
	}
	// One feedback of goesOn, and six.
	u.awaitLearned("f", "every feedback counts once", func(p api.PolicyStatus) bool { return p.Candidates[1].Count > 6.9 && p.Candidates[1].Count < 7 })
	if r := u.upgrade()(); r.status != 0 {
		t.Fatalf("an upgrade after those that were sent back: status %d %s%s", r.status, r.out, r.err)
	}
	u.oldEnds()
	u.goesOn("last")
}

// Either process is killed during the canary. The other one serves on.
func TestCanaryDies(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, args ...string) {
		u := serveUpgradable(t, args...)
		l := u.startLoop("g", 2, 20*time.Millisecond)
		wait := u.upgrade("--canary", "50%", "--canary-time", "1h")
		pid := u.isTried()
		l.more(u, 30)
		kill(t, pid)
		if r := wait(); r.status == 0 || !strings.Contains(r.err, strconv.Itoa(pid)) {
			t.Errorf("an upgrade whose canary was killed: status %d %s%s", r.status, r.out, r.err)
		}
		l.endBut(t, func(failure string) bool { // what the canary had accepted
			return strings.Contains(failure, "EOF") || strings.Contains(failure, "reset by peer")
		})
		l = u.startLoop("g", 2, 20*time.Millisecond)
		u.goesOn("first")
		l.end(t)

		wait = u.upgrade("--canary", "50%", "--canary-time", "1h")
		u.await("the second canary", func(context.Context) (bool, string) {
			return strings.Count(u.logText(), "serving a share of the connections") == 2, ""
		})
		u.pid = u.logsProcess("started a process that is to take over", 2)
		u.ended = true
		_ = syscall.Kill(u.cmd.Process.Pid, syscall.SIGKILL)
		<-u.exited
		wait()
		u.logs("the process before has died")
		u.fresh()
		u.await("the canary to serve", answers(u.gateway, "g", 7, "right@1"))
		l = u.startLoop("g", 2, 20*time.Millisecond)
		u.goesOn("second")
		l.end(t)
	})
}

// With TLS on the function port, connections are passed on before the handshake, and both processes write one inference log: each answer
// is in it once.
func TestCanaryOverTLSWithLog(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	log := filepath.Join(newDir(t), "log")
	u := &upgradable{dataDir: newDir(t), models: newDir(t)}
	writeFile(t, u.models, "models.yaml", behindGate("right", "echo", "replicas: {min: 2, max: 2}")+function("g", "right", "slo: 60s", "log: {sample: 1}"))
	u.open()
	u.gateway = launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", u.models, "--data-dir", u.dataDir, "--drain-timeout", "2s",
		"--cert", cert, "--key", key, "--inference-log", log)
	u.pid = u.cmd.Process.Pid
	t.Cleanup(u.end)
	u.await("the gateway's addresses", u.readAddresses)
	u.awaitReplicas("right", 2)

	var asked atomic.Int64
	ctx, end := context.WithCancel(bounded(t))
	defer end()
	var load sync.WaitGroup
	for i := range 2 {
		load.Go(func() { // one connection for each request, and one that is kept
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: i == 0}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			for ctx.Err() == nil {
				n := asked.Add(1)
				res, err := client.Post("https://"+u.functions+"/g/predict", "application/json", strings.NewReader(fmt.Sprintf(`{"input":%d}`, n)))
				if err != nil {
					t.Error(err)
					return
				}
				var a prediction
				err = json.NewDecoder(res.Body).Decode(&a)
				res.Body.Close()
				if err != nil || res.StatusCode != 200 || a.number() != int(n) {
					t.Errorf("request %d is answered %d %+v: %v", n, res.StatusCode, a, err)
					return
				}
			}
		})
	}
	r := u.upgrade("--canary", "50%", "--canary-time", "4s")()
	if r.status != 0 || !canaryLine.MatchString(r.out) {
		t.Fatalf("upgrade: status %d %s%s\n%s", r.status, r.out, r.err, tail(u.logText(), 40))
	}
	u.oldEnds()
	end()
	load.Wait()
	n := int(asked.Load())
	q, _ := u.awaitPrinted(n, 0, log, "--function", "g")
	ids := map[uint64]bool{}
	for _, l := range q {
		ids[l.QueryID] = true
	}
	if len(q) != n || len(ids) != n {
		t.Errorf("the log has %d queries with %d ids: expected %d", len(q), len(ids), n)
	}
	t.Logf("%d requests", n)
}
