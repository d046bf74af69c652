package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

// TestAnswers sends the requests in testdata/answers to gateways and compares each answer with the recorded one: status, headers and body, on both
// ports. testdata/answers/README.md describes the format of the files. To record again and see what changed, run in this directory
//
//	go test -run TestAnswers -rewrite . && git diff testdata/answers
func TestAnswers(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/answers/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata/answers has no recordings: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			r := &recorder{t: t, dir: newDir(t), wires: map[string]*wire{}, names: newPlaceholders()}
			r.names.constant(r.dir, "<dir>")
			r.names.constant(programs.worker, "<worker>")
			r.names.constant(filepath.Dir(programs.worker), "<programs>")
			defer r.report()
			datadriven.RunTest(t, path, r.do)
		})
	}
}

// maxDifferences bounds what a failed file prints.
const maxDifferences = 10

// recorder runs the directives of one file against one gateway.
type recorder struct {
	t      *testing.T
	g      *gateway
	dir    string           // working directory of the gateway; the directive "file" writes here
	wires  map[string]*wire // by port
	later  *wire            // carries the request whose answer "collect" reads
	resume func()           // ends a stall
	names  *placeholders

	differences []string
}

// do runs one directive. datadriven stops at the first failure, so do only notes a difference and returns the recorded answer: one run shows
// every difference of a file.
func (r *recorder) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	got := r.run(d)
	if got != "" && !strings.HasSuffix(got, "\n") {
		got += "\n"
	}
	if d.Rewrite || got == d.Expected {
		return got
	}
	r.differences = append(r.differences, fmt.Sprintf("%s: %s\n%s\nthe answer differs (- recorded, + now):\n%s",
		d.Pos, d.Cmd, d.Input, cmp.Diff(strings.Split(d.Expected, "\n"), strings.Split(got, "\n"))))
	return d.Expected
}

// report closes the connections and reports the first differences. Later ones are often their consequences.
func (r *recorder) report() {
	for _, w := range r.wires {
		w.conn.Close()
	}
	for _, d := range r.differences[:min(len(r.differences), maxDifferences)] {
		r.t.Error(d)
	}
	if more := len(r.differences) - maxDifferences; more > 0 {
		r.t.Errorf("%d more answers differ", more)
	}
}

func (r *recorder) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "serve":
		r.serve(d)
	case "file":
		r.file(d)
	case "await":
		r.await(d)
	case "function", "admin":
		return r.ask(d)
	case "collect":
		return r.collect()
	case "stall":
		r.stall(d)
	case "resume":
		r.resume()
	case "terminate":
		if err := r.g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			r.t.Fatal(err)
		}
	case "ended":
		r.g.gone(0)
	case "metrics":
		return r.metrics()
	case "log":
		return r.log()
	default:
		d.Fatalf(r.t, "unknown directive %q", d.Cmd)
	}
	return ""
}

// unsettled matches a model or a replica that is about to change. The gateway learns that a process runs from its supervisor, under load after
// the first answers.
var unsettled = regexp.MustCompile(`"state":"(starting|running|stopping|degraded)"`)

// serve starts the gateway with the flags of the directive, and with its input as --config. With the argument "unready" it does not wait until
// the models are ready.
func (r *recorder) serve(d *datadriven.TestData) {
	// The log warns where the machine's limit of open files has no room for the default number of connections.
	args := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--max-connections", "64"}
	for _, a := range d.CmdArgs {
		if strings.HasPrefix(a.Key, "--") {
			args = append(args, a.Key+"="+r.names.expand(strings.Join(a.Vals, ",")))
		}
	}
	if d.Input != "" {
		r.write("config.yaml", r.names.expand(d.Input))
		args = append(args, "--config", filepath.Join(r.dir, "config.yaml"))
	}
	r.g = launch(r.t, r.dir, args...)
	r.g.await("the gateway's addresses", r.g.readAddresses)
	r.names.constant(r.g.functions, "<functions>")
	r.names.constant(r.g.admin, "<admin>")
	if host, err := os.Hostname(); err == nil {
		r.names.constant(host+", process", "<host>, process")
	}
	if d.HasArg("unready") {
		return
	}
	r.g.ready()
	r.g.await("the models to settle", func(ctx context.Context) (bool, string) {
		_, body := r.g.fetch(ctx, "http://"+r.g.admin+"/v1/models") // refused where the admin port asks for a token
		return !unsettled.MatchString(body), body
	})
}

// file writes a file below the gateway's working directory.
func (r *recorder) file(d *datadriven.TestData) {
	if len(d.CmdArgs) != 1 {
		d.Fatalf(r.t, "expected the name of a file")
	}
	r.write(d.CmdArgs[0].Key, r.names.expand(d.Input)+"\n")
}

// write replaces a file atomically. If its directory is new, the directory appears together with the file, because the gateway may watch it. The
// mode is 0600, which the gateway requires of token files.
func (r *recorder) write(name, text string) {
	path := filepath.Join(r.dir, name)
	dir := filepath.Dir(path)
	fresh := dir
	if _, err := os.Stat(dir); err != nil {
		fresh = filepath.Join(filepath.Dir(dir), ".new")
	}
	err := os.MkdirAll(fresh, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(fresh, ".new"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(fresh, ".new"), filepath.Join(fresh, filepath.Base(path)))
	}
	if err == nil && fresh != dir {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// await polls a path, as in "await admin /v1/models/m", until the answer matches every regular expression of the input, one a line, and none of
// those that begin with "!". With the argument "settled" no model or replica may be about to change.
func (r *recorder) await(d *datadriven.TestData) {
	if len(d.CmdArgs) < 2 {
		d.Fatalf(r.t, "expected a port and a path")
	}
	type condition struct {
		expr *regexp.Regexp
		not  bool
	}
	var all []condition
	for line := range strings.Lines(d.Input) {
		text, not := strings.CutPrefix(strings.TrimSpace(line), "!")
		all = append(all, condition{regexp.MustCompile(r.names.expand(text)), not})
	}
	if d.HasArg("settled") {
		all = append(all, condition{unsettled, true})
	}
	url := "http://" + r.address(d.CmdArgs[0].Key) + d.CmdArgs[1].Key
	r.g.await(fmt.Sprintf("%s: %s to answer %q", d.Pos, url, d.Input), func(ctx context.Context) (bool, string) {
		status, body := r.g.fetch(ctx, url)
		ok := !slices.ContainsFunc(all, func(c condition) bool { return c.expr.MatchString(body) == c.not })
		return ok, fmt.Sprint(status, " ", body)
	})
}

// address is where a port listens.
func (r *recorder) address(port string) string {
	if port == "admin" {
		return r.g.admin
	}
	return r.g.functions
}

var replicaPID = regexp.MustCompile(`"pid":(\d+)`)

// stall stops the replica of a model, as in "stall m", until the directive "resume".
func (r *recorder) stall(d *datadriven.TestData) {
	_, body := r.g.fetch(bounded(r.t), "http://"+r.g.admin+"/v1/models/"+d.CmdArgs[0].Key)
	found := replicaPID.FindStringSubmatch(body)
	if found == nil {
		d.Fatalf(r.t, "the model has no process: %s", body)
	}
	pid, err := strconv.Atoi(found[1])
	if err != nil {
		r.t.Fatal(err)
	}
	r.resume = freeze(r.g.t, pid)
}

var (
	typeLine   = regexp.MustCompile(`^# TYPE (\S+) (\S+)$`)
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? `)
	labelName  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
)

// metrics lists the families of a scrape: name, type, label names. The families of the Go runtime depend on the toolchain, so one line stands
// for all of them.
func (r *recorder) metrics() string {
	status, body := r.g.fetch(bounded(r.t), "http://"+r.g.admin+"/metrics")
	if status != 200 {
		return fmt.Sprintf("%d %s", status, body)
	}
	const runtime = "go_*"
	types, labels := map[string]string{}, map[string]map[string]bool{}
	family := ""
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if m := typeLine.FindStringSubmatch(line); m != nil {
			var kind string
			if family, kind = m[1], m[2]; strings.HasPrefix(family, "go_") {
				family, kind = runtime, "various"
			}
			types[family], labels[family] = kind, map[string]bool{}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil || family == runtime {
			continue
		}
		var names []string
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			names = append(names, l[1])
		}
		labels[family][strings.TrimPrefix(m[1], family)+"{"+strings.Join(names, ",")+"}"] = true
	}
	var lines []string
	for name, kind := range types {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", name, kind, strings.Join(sorted(labels[name]), " "))))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func sorted(set map[string]bool) []string {
	var all []string
	for s := range set {
		all = append(all, s)
	}
	sort.Strings(all)
	return all
}

// log lists the distinct entries of the gateway's log, sorted: level, logger, message, keys.
func (r *recorder) log() string {
	entries := map[string]bool{}
	for line := range strings.Lines(r.g.logText()) {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t") // time, level, …, message, fields
		fields := map[string]json.RawMessage{}
		last := len(parts) - 1
		if json.Unmarshal([]byte(parts[last]), &fields) == nil {
			parts = parts[:last]
		}
		keys := map[string]bool{}
		for k := range fields {
			keys[k] = true
		}
		entries[r.names.normalise(strings.Join(parts[min(1, len(parts)):], " "))+" {"+strings.Join(sorted(keys), ", ")+"}"] = true
	}
	return strings.Join(sorted(entries), "\n")
}
