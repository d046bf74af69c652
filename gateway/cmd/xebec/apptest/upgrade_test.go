package apptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// upgradable is a gateway whose replicas begin to load when the file "gate" is in their directory.
type upgradable struct {
	*gateway
	dataDir, models string
	pid             int // of the process that serves
}

// behindGate is a model that waits for the gate, and fails on every query if the file "bad" is there when it starts.
func behindGate(name, mode string, extra ...string) string {
	return strings.Replace(number(name, mode, extra...), `{command: ["`, `{command: [sh, -c, 'until [ -e gate ]; do sleep 0.02; done; if [ -e bad ]; then exec "$1" -mode error; fi; exec "$@"', sh, "`, 1)
}

func serveUpgradable(t *testing.T, args ...string) *upgradable {
	t.Helper()
	u := &upgradable{dataDir: newDir(t), models: newDir(t)}
	writeFile(t, u.models, "models.yaml", behindGate("right", "echo", "replicas: {min: 2, max: 2}")+behindGate("wrong", "noop", "replicas: {min: 0, max: 1, idle: 1h}")+
		function("f", "wrong, right", "slo: 60s", "policy: exp4")+function("g", "right", "slo: 60s"))
	u.open()
	u.gateway = serve(t, append([]string{"--config", u.models, "--data-dir", u.dataDir, "--drain-timeout", "3s"}, args...)...)
	u.pid = u.cmd.Process.Pid
	t.Cleanup(u.end)
	u.ask("f", 1, "") // wakes the model that sleeps
	u.awaitReplicas("wrong", 1)
	return u
}

func (u *upgradable) gate() string { return filepath.Join(u.models, "gate") }
func (u *upgradable) open()        { _ = os.WriteFile(u.gate(), nil, 0o644) }
func (u *upgradable) shut()        { _ = os.Remove(u.gate()) }

// end ends the process that serves, and checks that nothing is left.
func (u *upgradable) end() {
	if u.pid == u.cmd.Process.Pid {
		return // the harness does it
	}
	_ = syscall.Kill(u.pid, syscall.SIGTERM)
	err := poll(context.Background(), func(context.Context) (bool, string) {
		left := processesOf(u.dir)
		return len(left) == 0, fmt.Sprintf("%v", left)
	})
	if err != nil {
		u.t.Errorf("processes outlived the gateway: %v", err)
		for _, p := range processesOf(u.dir) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	if text := u.logText(); defect.MatchString(text) {
		u.t.Errorf("the log has a panic or a data race:\n%s", text)
	}
}

// oldEnds waits until the first process has ended, with status 0.
func (u *upgradable) oldEnds() {
	u.t.Helper()
	select {
	case <-u.exited:
	case <-time.After(patience):
		u.t.Fatal("the old process does not end")
	}
	if !u.cmd.ProcessState.Success() {
		u.t.Errorf("the old process ended with %v\n%s", u.cmd.ProcessState, tail(u.logText(), 40))
	}
}

var servesLine = regexp.MustCompile(`process (\d+) serves`)

// upgrade runs the command in the background. The returned function waits for it, and returns its result.
func (u *upgradable) upgrade(args ...string) (wait func() result) {
	done := make(chan result, 1)
	go func() { done <- u.xebec(append([]string{"upgrade", "--data-dir", u.dataDir}, args...)...) }()
	return func() result {
		u.t.Helper()
		r := <-done
		if found := servesLine.FindStringSubmatch(r.out); found != nil {
			u.pid, _ = strconv.Atoi(found[1])
			u.ended = true // the first process may end at any time from now on
		}
		return r
	}
}

func (u *upgradable) logs(line string) {
	u.t.Helper()
	u.await("the log to say "+line, func(context.Context) (bool, string) { return strings.Contains(u.logText(), line), tail(u.logText(), 5) })
}

// logsProcess waits until the log has had a line n times, and returns the id of the process that the n-th of them names. A gateway and the one that
// takes over write the same log, so a line of the one says nothing about what the other has written.
func (u *upgradable) logsProcess(line string, n int) (pid int) {
	u.t.Helper()
	names := regexp.MustCompile(regexp.QuoteMeta(line) + `\t\{"process": (\d+)[,}]`)
	u.await(fmt.Sprintf("the log to say %q and name a process, time %d", line, n), func(context.Context) (bool, string) {
		found := names.FindAllStringSubmatch(u.logText(), n)
		if len(found) < n {
			return false, tail(u.logText(), 5)
		}
		var err error
		pid, err = strconv.Atoi(found[n-1][1])
		return err == nil, found[n-1][0]
	})
	return pid
}

// loop is an open loop: requests are sent at their times, whatever became of those before.
type loop struct {
	stop   chan struct{}
	wg     sync.WaitGroup
	mu     sync.Mutex
	sent   int
	failed []string
}

// startLoop sends a request to a function at each interval on each of some connections that are kept, and one on a connection of its
// own. Nothing is tried again.
func (u *upgradable) startLoop(function string, kept int, interval time.Duration) *loop {
	l := &loop{stop: make(chan struct{})}
	one := func(c net.Conn, n int) (net.Conn, error) {
		var err error
		if c == nil {
			if c, err = net.Dial("tcp", u.functions); err != nil {
				return nil, err
			}
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		body := fmt.Sprintf(`{"input":%d}`, n)
		fmt.Fprintf(c, "POST /%s/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", function, len(body), body)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			c.Close()
			return nil, err
		}
		var a prediction
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err == nil && (r.StatusCode != 200 || string(a.Output) != strconv.Itoa(n)) {
			err = fmt.Errorf("%d %s", r.StatusCode, text)
		}
		if r.Close || err != nil {
			c.Close()
			c = nil
		}
		return c, err
	}
	count := func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sent++; err != nil {
			l.failed = append(l.failed, err.Error())
		}
	}
	for i := range kept {
		l.wg.Go(func() {
			var c net.Conn
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for n := i; ; n += kept {
				select {
				case <-tick.C:
				case <-l.stop:
					if c != nil {
						c.Close()
					}
					return
				}
				var err error
				c, err = one(c, n)
				count(err)
			}
		})
	}
	l.wg.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
				l.wg.Go(func() {
					c, err := one(nil, n)
					count(err)
					if c != nil {
						c.Close()
					}
				})
			case <-l.stop:
				return
			}
		}
	})
	u.t.Cleanup(func() { l.end(u.t) })
	return l
}

// end stops the loop, and fails the test for every request that failed.
func (l *loop) end(t *testing.T) {
	t.Helper()
	l.endBut(t, func(string) bool { return false })
}

// endBut is end, except for failures that the test expects.
func (l *loop) endBut(t *testing.T, expected func(failure string) bool) {
	t.Helper()
	select {
	case <-l.stop:
		return
	default:
	}
	close(l.stop)
	l.wg.Wait()
	failed := slices.Clone(l.failed)
	if failed = slices.DeleteFunc(failed, expected); len(failed) > 0 {
		t.Errorf("%d of %d requests failed, first: %s", len(failed), l.sent, failed[0])
	}
	t.Logf("%d requests, %d failed, %d of them as expected", l.sent, len(l.failed), len(l.failed)-len(failed))
}

// more waits until so many more requests were answered.
func (l *loop) more(u *upgradable, n int) {
	u.t.Helper()
	l.mu.Lock()
	until := l.sent + n
	l.mu.Unlock()
	u.await("more requests", func(context.Context) (bool, string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.sent >= until, fmt.Sprint(l.sent)
	})
}

// stores runs a test with a file, and with a Redis server.
func stores(t *testing.T, test func(t *testing.T, args ...string)) {
	t.Run("file", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, "--store", redistest.Start(t, redistest.Config{}).URL())
	})
}

// A gateway is upgraded under an open loop, twice. No request fails, what was declared and learned is there, feedback on queries that
// the old process has answered counts once, and changes are refused while the new one loads and possible afterwards.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, args ...string) {
		u := serveUpgradable(t, args...)
		ids := [4]uint64{}
		for i := range ids {
			ids[i] = *u.ask("f", 7, "").QueryID
		}
		if status, said := u.tell("f", `{"query_id":%d,"label":7}`, ids[0]); status != 200 || said.Status != "counted" {
			t.Fatalf("feedback is answered by %d %+v", status, said)
		}
		l := u.startLoop("g", 4, 10*time.Millisecond)
		l.more(u, 50)
		u.shut()
		wait := u.upgrade()
		u.logs("loads its replicas and then takes over")
		declared := manifest(t, function("late", "right", "slo: 60s"))
		if r := u.xebec("apply", "-f", declared); r.status == 0 || !strings.Contains(r.err, "taking over") {
			t.Errorf("apply during the takeover: status %d %s%s", r.status, r.out, r.err)
		}
		if a, err := u.client.Post("http://"+u.admin+"/v1/apply", "application/yaml", strings.NewReader(function("late", "right", "slo: 60s"))); err != nil {
			t.Error(err)
		} else if a.Body.Close(); a.StatusCode != 503 || a.Header.Get("Retry-After") == "" {
			t.Errorf("apply during the takeover is answered %+v: expected 503 with Retry-After", a)
		}
		if r := u.xebec("upgrade", "--data-dir", u.dataDir); r.status == 0 || !strings.Contains(r.err, "already") {
			t.Errorf("a second upgrade: status %d %s%s", r.status, r.out, r.err)
		}
		if status, said := u.tell("f", `{"query_id":%d,"label":7}`, ids[1]); status != 200 || said.Status != "counted" {
			t.Errorf("feedback while the new process loads is answered by %d %+v", status, said)
		}
		u.open()
		if r := wait(); r.status != 0 || u.pid == u.cmd.Process.Pid {
			t.Fatalf("upgrade: status %d %s%s", r.status, r.out, r.err)
		}
		if status, said := u.tell("f", `{"query_id":%d,"label":7}`, ids[2]); status != 200 || said.Status != "counted" {
			t.Errorf("feedback on a query of the old process is answered by %d %+v", status, said)
		}
		l.more(u, 50)
		u.oldEnds()
		for i, want := range []string{"duplicate", "duplicate", "duplicate", "counted"} {
			if _, said := u.tell("f", `{"query_id":%d,"label":7}`, ids[i]); said.Status != want {
				t.Errorf("feedback %d after the upgrade is answered by %+v: expected %s", i, said, want)
			}
		}
		// Each of the four feedbacks has counted once: the count decays by a thousandth with each.
		u.awaitLearned("f", "four feedbacks", func(p api.PolicyStatus) bool { return p.Candidates[1].Count > 3.9 && p.Candidates[1].Count < 4 })
		u.must("apply", "-f", declared, "--wait")
		if a := u.ask("late", 3, ""); a.number() != 3 {
			t.Errorf("the function that was declared after the upgrade answers %v", a)
		}
		if m := u.model("wrong"); m.ReadyReplicas() != 1 {
			t.Errorf("the model that was awake has %d replicas", m.ReadyReplicas())
		}

		before := u.pid // the new process can be upgraded as well
		if r := u.upgrade()(); r.status != 0 || u.pid == before {
			t.Fatalf("the second upgrade: status %d %s%s", r.status, r.out, r.err)
		}
		l.more(u, 50)
		u.await("the second process to end", func(context.Context) (bool, string) {
			return errors.Is(syscall.Kill(before, 0), syscall.ESRCH), ""
		})
		if a := u.ask("late", 3, ""); a.number() != 3 {
			t.Errorf("after the second upgrade the function answers %v", a)
		}
		if _, said := u.tell("f", `{"query_id":%d,"label":7}`, ids[3]); said.Status != "duplicate" {
			t.Errorf("feedback after the second upgrade is answered by %+v", said)
		}
		l.end(t)
	})
}

// An upgrade ends soon, and says why, if one of a model's two replicas cannot start in the new process. The old one goes on.
func TestUpgradeOfAModelThatStartsInPart(t *testing.T) {
	t.Parallel()
	const alone = `if [ -e bad ]; then exec 9<bad; flock -n 9 || exit 7; fi;`
	models, data := newDir(t), newDir(t)
	model := strings.Replace(number("m", "echo", "replicas: {min: 2, max: 2}"), `{command: ["`, `{command: [sh, -c, '`+alone+` exec "$@"', sh, "`, 1)
	writeFile(t, models, "models.yaml", model+function("f", "m", "slo: 60s"))
	g := serve(t, "--config", models, "--data-dir", data, "--drain-timeout", "3s")
	u := &upgradable{gateway: g, dataDir: data, models: models, pid: g.cmd.Process.Pid}
	t.Cleanup(u.end)
	g.awaitReplicas("m", 2)
	bad := filepath.Join(models, "bad")
	if err := os.WriteFile(bad, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := u.upgrade()()
	if want := "replicas of m@1 cannot be started: the process before has 2, this one 1; the last start: exited with code 7"; r.status == 0 || !strings.Contains(r.err, want) {
		t.Errorf("status %d, %s%s: expected %q", r.status, r.out, r.err, want)
	}
	u.logs("changes are possible again")
	u.must("apply", "-f", manifest(t, function("late", "m", "slo: 60s")))
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if r := u.upgrade()(); r.status != 0 {
		t.Errorf("with all replicas: status %d, %s%s", r.status, r.out, r.err)
	}
	u.oldEnds()
}

// describedUpgrade is what `describe gateway` says of an upgrade; nil: nothing.
func (u *upgradable) describedUpgrade() *api.UpgradeStatus {
	u.t.Helper()
	var g api.GatewayStatus
	if err := json.Unmarshal([]byte(u.must("describe", "gateway", "-o", "json")), &g); err != nil {
		u.t.Fatal(err)
	}
	return g.Upgrade
}

// halfRequest is a request whose body has not come to its end: the process that has it cannot end before.
func (u *upgradable) halfRequest() (finish func()) {
	u.t.Helper()
	c := u.keep()
	if err := c.ask(1); err != nil {
		u.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST /g/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"); err != nil {
		u.t.Fatal(err)
	}
	return func() {
		u.t.Helper()
		if _, err := fmt.Fprint(c, `"input":7}`); err != nil {
			u.t.Fatal(err)
		}
		r, err := http.ReadResponse(c.from, nil)
		if err != nil {
			u.t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != 200 {
			u.t.Errorf("the request that the old process had is answered by %d", r.StatusCode)
		}
	}
}

// An upgrade right after another one waits for the end of the process before, however long that answers its last requests, and says so.
// Meanwhile the new process shows its role, and which versions it waits for.
func TestUpgradeRightAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	u := serveUpgradable(t, "--drain-timeout", "1m", "--idle-timeout", "5m")
	old := u.pid
	finish := u.halfRequest()
	if r := u.upgrade()(); r.status != 0 {
		t.Fatalf("upgrade: status %d %s%s", r.status, r.out, r.err)
	}
	before := u.pid
	u.fresh()
	if s := u.describedUpgrade(); s == nil || s.Role != api.UpgradeNew || s.Step != api.UpgradeFinishing || s.Peer != old {
		t.Errorf("describe gateway shows %+v", s)
	}
	for _, at := range []string{u.functions, u.admin} {
		if status, body := u.fetch(bounded(t), "http://"+at+"/readyz?verbose"); status != 200 || !strings.Contains(body, fmt.Sprintf(`"upgrade":{"role":"new","peer":%d`, old)) {
			t.Errorf("%s: /readyz?verbose: %d %s", at, status, body)
		}
	}
	waiting := &printed{}
	second := exec.CommandContext(bounded(t), programs.xebec, "upgrade", "--data-dir", u.dataDir)
	second.Stdout, second.Stderr = waiting, waiting
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("process %d has just taken over: waiting while process %d answers its last requests", before, old)
	u.ended = true
	u.await("the second upgrade to wait", func(context.Context) (bool, string) { return strings.Contains(waiting.text(), says), waiting.text() })
	finish()
	if err := second.Wait(); err != nil {
		t.Fatalf("the second upgrade: %v %s", err, waiting.text())
	}
	found := servesLine.FindStringSubmatch(waiting.text())
	if found == nil {
		t.Fatalf("the second upgrade: %s", waiting.text())
	}
	u.pid, _ = strconv.Atoi(found[1])
	u.oldEnds()
	u.await("the second upgrade to be over", func(context.Context) (bool, string) {
		s := u.describedUpgrade()
		return s == nil, fmt.Sprintf("%+v", s)
	})
	if u.pid == before {
		t.Error("the second upgrade has replaced nothing")
	}
	if a := u.ask("g", 3, ""); a.number() != 3 {
		t.Errorf("after the second upgrade the function answers %v", a)
	}
}

// printed collects what a process writes.
type printed struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *printed) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *printed) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A required function that is broken in both processes does not hold an upgrade up: the new process is as ready as the old one.
func TestUpgradeWithABrokenRequiredFunction(t *testing.T) {
	t.Parallel()
	u := &upgradable{dataDir: newDir(t), models: newDir(t)}
	broken := strings.Replace(number("broken", "noop"), `{command: ["`, `{command: [sh, -c, 'exit 7', sh, "`, 1)
	writeFile(t, u.models, "models.yaml", number("right", "echo")+broken+function("g", "right", "slo: 60s")+function("f", "broken", "slo: 60s")+function("h", "right, broken", "slo: 60s", "policy: exp4"))
	u.gateway = launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", u.models, "--data-dir", u.dataDir, "--drain-timeout", "3s", "--ready-requires", "all")
	u.pid = u.cmd.Process.Pid
	t.Cleanup(u.end)
	u.await("the gateway's addresses", u.readAddresses)
	u.await("the function to answer", answers(u.gateway, "g", 7, "right@1"))
	notReady := func(context.Context) (bool, string) {
		status, body := u.fetch(bounded(t), "http://"+u.functions+"/readyz")
		return status == 503 && strings.Contains(body, "f"), body
	}
	u.await("the broken function to be shown", notReady)
	if r := u.upgrade()(); r.status != 0 || u.pid == u.cmd.Process.Pid {
		t.Fatalf("upgrade: status %d %s%s", r.status, r.out, r.err)
	}
	u.fresh()
	u.oldEnds()
	u.await("the broken function to be shown by the new process", notReady)
	if a := u.ask("g", 3, ""); a.number() != 3 {
		t.Errorf("after the upgrade the function answers %v", a)
	}
}

// What comes up in the old process while the new one loads is loaded by the new one too, before it takes over: a version that takes over
// from another one, and a model that wakes. Callers do not go back to the older version, and no query waits for a start.
func TestUpgradeWhileOthersComeUp(t *testing.T) {
	t.Parallel()
	u := &upgradable{dataDir: newDir(t), models: newDir(t)}
	// The old process and the new one, whose socket has another name, have gates of their own.
	gated := func(manifest string) string {
		const script = `case $XEBEC_SOCKET in */worker2.sock | */doors2/*) until [ -e second ]; do sleep 0.02; done;; *) until [ -e first ]; do sleep 0.02; done;; esac; exec "$@"`
		return strings.Replace(manifest, `{command: ["`, `{command: [sh, -c, '`+script+`', sh, "`, 1)
	}
	writeFile(t, u.models, "models.yaml", behindGate("m", "echo")+gated(number("z", "echo", "replicas: {min: 0, max: 1, idle: 1h}"))+
		function("g", "m", "slo: 60s")+function("h", "z", "slo: 60s"))
	u.open()
	u.gateway = serve(t, "--config", u.models, "--data-dir", u.dataDir, "--drain-timeout", "3s")
	u.pid = u.cmd.Process.Pid
	t.Cleanup(u.end)
	u.awaitReplicas("m", 1)
	writeFile(t, u.models, "next.yaml", gated(version(number("m", "echo"), "2")))
	u.must("apply", "-f", filepath.Join(u.models, "next.yaml"))

	u.shut()
	wait := u.upgrade()
	u.logs("loads its replicas and then takes over")
	writeFile(t, u.models, "first", "")
	u.await("version 2 to serve", answers(u.gateway, "g", 7, "m@2"))
	u.ask("h", 7, "")
	u.open()
	for _, name := range []string{"m@2", "z@1"} {
		u.await("the new process to wait for "+name, func(context.Context) (bool, string) {
			s := u.describedUpgrade()
			return s != nil && strings.Contains(strings.Join(s.Awaited, ", "), name+" has 0 of 1 replica"), fmt.Sprintf("%+v", s)
		})
	}
	if a := u.ask("g", 8, ""); a.Models[0] != "m@2" {
		t.Errorf("while the new process loads, %v answers", a.Models)
	}
	writeFile(t, u.models, "second", "")
	if r := wait(); r.status != 0 || !strings.Contains(r.out, " waits: m@2 has 0 of 1 replica") {
		t.Fatalf("upgrade: status %d %s%s", r.status, r.out, r.err)
	}
	if a := u.ask("g", 9, ""); a.Models[0] != "m@2" {
		t.Errorf("after the upgrade %v answers", a.Models)
	}
	if m := u.model("z"); m.ReadyReplicas() != 1 {
		t.Errorf("the model that has woken meanwhile has %d replicas in the new process", m.ReadyReplicas())
	}
	u.oldEnds()
}

// An upgrade while the store is away says so. The old process serves, and goes on when the command is interrupted.
func TestUpgradeWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t, redistest.Config{})
	u := serveUpgradable(t, "--store", store.URL())
	store.Kill()
	said := &printed{}
	cmd := exec.CommandContext(bounded(t), programs.xebec, "upgrade", "--data-dir", u.dataDir)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u.await("the command to say that the store is away", func(context.Context) (bool, string) {
		return strings.Contains(said.text(), "waits: the store "), said.text()
	})
	if a := u.ask("g", 3, ""); a.number() != 3 {
		t.Errorf("meanwhile the function answers %v", a)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the upgrade has succeeded: %s", said.text())
	}
	u.logs("changes are possible again")
}
