package xebec

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/xebec-serving/xebec"

// A rule says what the non-test files of some packages may import of ours. The first rule whose pattern matches a package
// holds for it; a package without a rule is a problem, so that nobody grows a folder by accident.
//
// Patterns are paths below the module: "a/b" is that package, "a/b/..." is it and everything under it. "*" means anything
// of ours except programs (package main) and bench.
type rule struct {
	packages string
	ours     []string
	pure     bool
	reason   string
}

var rules = []rule{
	{".", nil, true, "the root holds no code: what can be imported lives in a folder of its own"},

	{"api/manifest/...", []string{"api"}, false, "it reads and writes specs, which the CLI does without a gateway"},
	{"api/...", []string{"api/..."}, true, "api is nouns that every package speaks: an import of ours would close a circle"},

	{"shm/...", []string{"shm/..."}, false, "shared memory knows no models: it must be checkable, and reusable, on its own"},

	{"scheduler", []string{"api"}, true, "the core is a state machine: events and now in, actions out; it is tested and simulated without a clock"},
	{"scheduler/timer", []string{"api"}, true, "a data structure: it is told the time"},
	{"scheduler/planner", []string{"api", "scheduler"}, true, "one snapshot in, one plan out"},
	{"scheduler/autoscale/...", []string{"api", "scheduler/autoscale"}, true, "one snapshot in, one decision out"},
	{"scheduler/placement/...", []string{"api"}, true, "who wants what and what there is in, who gets what out"},
	{"scheduler/sim/...", []string{"api", "scheduler", "scheduler/autoscale", "scheduler/autoscale/...", "scheduler/planner", "scheduler/timer"}, true, "the simulator drives the pure parts and nothing else, under a clock of its own"},
	{"scheduler/driver/...", []string{"api", "scheduler", "scheduler/autoscale", "scheduler/planner", "scheduler/timer"}, false,
		"the driver gives the core goroutines and a clock; replicas reach it through its own interface, whatever carries them"},

	{"worker/wire/...", []string{"api"}, true, "the codec is bytes in, values out: it is fuzzed without a socket"},
	{"worker/bindings/...", []string{"api", "shm", "worker/wire", "worker/bindings/..."}, false,
		"a binding is the worker's side of the protocol: what it took from the gateway's side would hide defects of both"},
	{"worker/workertest/...", []string{"api", "shm", "worker", "worker/local", "worker/wire", "worker/workertest/..."}, false,
		"the conformance suite judges bindings from outside, through the protocol"},
	{"worker", []string{"api"}, true, "it says what a replica is, whatever carries batches to it: a transport's words in it would be every transport's"},
	{"worker/memory/...", []string{"api", "worker"}, false, "it shows that the interfaces of worker need neither the protocol nor shared memory"},
	{"worker/local/...", []string{"api", "shm", "worker", "worker/wire"}, false,
		"a transport carries batches; who forms them and what answers are for is not its business"},
	{"worker/...", []string{"api", "worker", "worker/wire"}, false,
		"a transport carries batches, and shared memory is package local's; who forms batches and what answers are for is not its business"},

	{"containers/mux/...", []string{"containers"}, false, "it chooses between runtimes that it is given: one that it knew would come with every mux"},
	{"containers/...", []string{"api", "containers/..."}, false, "how replicas run is independent of what they are sent"},

	{"gateway/selection/...", []string{"api"}, true, "policies are arithmetic: state in, choice out"},
	{"gateway/cache/...", []string{"api"}, false, "the cache keeps predictions, whoever made them"},
	{"gateway/internal/state/...", []string{"api", "gateway/internal/state/..."}, false, "the store keeps numbers by name, whatever they mean"},
	{"gateway/learned/...", []string{"api", "gateway/selection", "gateway/internal/state"}, false, "it keeps policies' states in memory and writes them to a store; what they decide, and about what, is not its business"},
	{"gateway/registry", []string{"api"}, true, "who is to be loaded and who is to serve is arithmetic over states: it is walked and simulated without a clock"},
	{"gateway/registry/watch/...", []string{"api", "api/manifest"}, false, "a source says what there is; what becomes of it is the registry's"},
	{"gateway/drift/...", []string{"api"}, false, "it compares numbers with numbers, whoever served them"},
	{"gateway/quality/...", []string{"api", "gateway/internal/tensorjson"}, false, "it reads recorded queries and judges answers; who evaluates them is not its business"},
	{"gateway/inferlog/...", []string{"api", "gateway/internal/tensorjson"}, false, "it writes and reads records; what is logged is decided by who calls it"},
	{"gateway/internal/...", []string{"api", "gateway/internal/..."}, false, "tools of the gateway, each usable alone"},
	{"gateway/query", []string{"api", "scheduler", "scheduler/driver", "gateway/cache", "gateway/drift", "gateway/inferlog", "gateway/internal/obs", "gateway/selection"}, false,
		"the way of a query is the same for every protocol and for callers in the process: it knows none of them, nor what runs models"},
	{"gateway/query/querytest", []string{"api", "scheduler"}, false, "it stands in for a scheduler in the tests of gateway/query itself, which it therefore cannot import"},
	{"gateway/dialect", []string{"api", "gateway/query", "gateway/internal/tensorjson"}, false, "it says what a dialect is, and knows none of them"},
	{"gateway/dialect/...", []string{"api", "gateway/dialect", "gateway/query", "gateway/selection", "gateway/internal/tensorjson"}, false,
		"a dialect parses and renders: it serves any transport, so it knows none, and it can be left out, so no other dialect needs it"},
	{"gateway/http", []string{"api", "gateway/dialect", "gateway/query"}, false, "the edge serves any dialect: which ones is for the composition to say"},
	{"gateway/control/capacity", []string{"api", "containers", "containers/node", "scheduler", "scheduler/autoscale", "scheduler/driver", "scheduler/placement", "gateway/internal/obs", "gateway/query"}, false,
		"it counts replicas: a version is an interface to it, and what is declared or served is for others to decide"},
	{"gateway/control/deployment", []string{"api", "containers", "scheduler", "scheduler/driver", "worker", "gateway/cache", "gateway/control/capacity", "gateway/internal/obs", "gateway/query"}, false,
		"it is one version and what serves it: it knows no other version, no function and no transport"},
	{"gateway/control/versions", []string{"api", "gateway/control/deployment", "gateway/drift", "gateway/internal/obs", "gateway/learned", "gateway/quality", "gateway/query", "gateway/registry", "gateway/selection", "scheduler/driver"}, false,
		"it moves versions through their lives: functions are an interface to it, and what is declared comes from outside"},
	{"gateway/control/functions", []string{"api", "gateway/control/deployment", "gateway/control/versions", "gateway/inferlog", "gateway/internal/obs", "gateway/learned", "gateway/query", "gateway/selection", "scheduler/driver", "scheduler/planner"}, false,
		"it has functions and the table of names: whether a declaration is allowed has been judged before"},
	{"gateway/control/declarations", []string{"api", "api/manifest", "gateway/control/...", "gateway/internal/state", "gateway/registry", "gateway/registry/watch", "gateway/selection"}, false,
		"it decides what is declared and tells the others: it starts nothing and answers no query"},
	{"gateway/control/status", []string{"api", "containers", "gateway/cache", "gateway/control/...", "gateway/inferlog", "gateway/internal/obs", "gateway/internal/state", "gateway/learned", "gateway/query", "scheduler", "scheduler/driver", "scheduler/planner"}, false,
		"it reads the others and changes nothing, so nothing depends on it but the composition"},
	{"gateway/server/...", []string{"*"}, false, ""},
	{"gateway/cmd/...", []string{"*"}, false, ""},
	{"gateway/...", []string{"api", "api/manifest", "scheduler", "scheduler/driver", "gateway/query", "gateway/admin", "gateway/cache", "gateway/drift", "gateway/inferlog", "gateway/internal/...", "gateway/learned", "gateway/selection"}, false,
		"only gateway/server, the composition, knows transports and containers; the rest of the gateway is given them through interfaces"},

	{"bench/...", []string{"*", "bench/..."}, false, ""},
}

// exceptFrom takes packages out of "*": the composition speaks of workers and containers, never of the memory below them.
var exceptFrom = []struct{ packages, imports, reason string }{
	{"gateway/...", "shm/...", "shared memory lies behind worker: nobody else maps, parses or trusts it"},
	{"gateway/...", "worker/wire/...", "the wire lies behind worker"},
	{"gateway/...", "worker/bindings/...", "bindings are for workers, in processes of their own"},
	{"gateway/...", "worker/memory/...", "the transport in memory is for tests"},
}

// bans keep packages of the standard library, and what is below them, out of packages that are not pure but must not know of them.
var bans = []struct {
	packages string
	imports  []string
	reason   string
}{
	{"gateway/query/...", []string{"net", "encoding/json"}, "the path of a query sees neither connections nor the bytes of a protocol"},
	{"gateway/dialect/...", []string{"net", "os", "syscall"}, "a dialect sees an exchange, not a connection"},
}

// A home is where one third-party dependency, standing for its family, may be imported by non-test files.
type home struct {
	dependency string
	packages   []string
	reason     string
}

var homes = []home{
	{"github.com/cloudwego/hertz", []string{"gateway/http", "gateway/admin", "gateway/server", "bench/..."}, "HTTP ends in the gateway: nothing behind it sees a Hertz type"},
	{"github.com/cloudwego/netpoll", []string{"worker/...", "gateway/http", "bench/..."}, "sockets belong to worker, the listener to the gateway"},
	{"github.com/prometheus", []string{"gateway/internal/obs/..."}, "metrics are counted in plain counters and shown by one package"},
	{"go.yaml.in/yaml/v3", []string{"api/manifest", "gateway/cmd/..."}, "one YAML format, read and written in one place; the CLI prints it"},
	{"github.com/klauspost/compress", []string{"worker/remote", "gateway/http", "gateway/inferlog", "gateway/quality"}, "worker compresses frames, the gateway bodies, logs and recorded queries"},
	{"golang.org/x/sys", []string{"shm", "containers/process/...", "containers/cgroup/...", "containers/docker", "containers/node", "worker/local", "worker/bindings/go/...", "gateway/http", "gateway/server", "gateway/internal/...", "bench/..."}, "system calls belong to the packages that own the descriptor"},
	{"github.com/redis/go-redis/v9", []string{"gateway/internal/state/..."}, "what gateways share goes through the store"},
	{"go.etcd.io/bbolt", []string{"gateway/internal/state/..."}, "what outlives the gateway goes through the store"},
	{"github.com/zeebo/xxh3", []string{"gateway/query", "gateway/cache", "gateway/learned"}, "it hashes inputs and contexts, for tables in memory; what it finds is compared"},
	{"github.com/maypok86/otter/v2", []string{"bench/..."}, "it is what the cache is compared with"},
	{"github.com/moby/moby", []string{"containers/docker/..."}, "the container engine is one way of running replicas: nobody else speaks to it"},
	{"github.com/containerd/errdefs", []string{"containers/docker/..."}, "it tells the engine's errors apart"},
	{"go.uber.org/zap", []string{"gateway/server", "gateway/control/...", "gateway/cmd/...", "gateway/admin", "gateway/inferlog", "gateway/learned", "gateway/registry/watch", "scheduler/driver", "worker/local", "containers/..."}, "the composition makes loggers and hands them to drivers; pure packages have nothing to say"},
	{"github.com/spf13/cobra", []string{"gateway/cmd/..."}, "flags belong to programs, never to libraries"},
	{"github.com/HdrHistogram/hdrhistogram-go", []string{"bench/..."}, "it is the load generator's"},
	{"gonum.org/v1/plot", []string{"bench/..."}, "figures are drawn by bench"},
	{"pgregory.net/rapid", []string{"worker/workertest/..."}, "tests only"},
	{"github.com/google/go-cmp", []string{"worker/workertest/...", "bench/internal/resultstest"}, "tests only"},
	{"go.uber.org/goleak", nil, "tests only"},
	{"github.com/cockroachdb/datadriven", nil, "tests only"},
}

// What a pure package must not import, and which functions of time it must not call: it is told the time.
var (
	impure      = []string{"net", "os", "log", "sync", "syscall", "runtime"}
	clockReads  = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	vagueNames  = []string{"util", "utils", "common", "types", "helpers", "misc", "base"}
	maxLines    = 700 // a file that a newcomer reads in one sitting; generated files and tests are not counted
	aimedLines  = 500
	minDocBytes = 120 // shorter than this a package comment says nothing that the name does not
)

// source is one Go file as the checks see it.
type source struct {
	path string // below the module, with slashes
	ast  *ast.File
	fset *token.FileSet
	test bool
}

func (s source) lines() int { return s.fset.File(s.ast.FileStart).LineCount() }

func TestArchitecture(t *testing.T) {
	var files []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			skip := []string{"testdata", "build", "bin", "node_modules"}
			if name != "." && (slices.Contains(skip, d.Name()) || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, source{filepath.ToSlash(name), f, fset, strings.HasSuffix(name, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files found: the test must run in the root of the module")
	}
	for _, problem := range checkAll(files) {
		t.Error(problem)
	}
	for _, f := range files {
		if n := f.lines(); n > aimedLines && !f.test && !ast.IsGenerated(f.ast) {
			t.Logf("%s has %d lines: %d is what we aim at", f.path, n, aimedLines)
		}
	}
}

// checkAll returns what is wrong, one sentence each, in the order of the files.
func checkAll(files []source) []string {
	var problems []string
	documented := map[string]bool{}
	first := map[string]source{}
	for _, f := range files {
		problems = append(problems, checkFile(f)...)
		if f.test {
			continue
		}
		dir := path.Dir(f.path)
		if _, seen := first[dir]; !seen {
			first[dir] = f
		}
		if f.ast.Doc != nil && len(f.ast.Doc.Text()) >= minDocBytes && (path.Base(f.path) == "doc.go" || f.ast.Name.Name == "main") {
			documented[dir] = true
		}
	}
	for _, dir := range sortedKeys(first) {
		f := first[dir]
		if f.ast.Name.Name == "main" && !documented[dir] {
			problems = append(problems, fmt.Sprintf("%s: the program has no comment that says what it does: expected one of %d bytes or more over `package main`", dir, minDocBytes))
		} else if !documented[dir] {
			problems = append(problems, fmt.Sprintf("%s: expected a doc.go whose package comment says what the package promises, to whom, and what it never does", dir))
		}
		if slices.Contains(vagueNames, f.ast.Name.Name) {
			problems = append(problems, fmt.Sprintf("%s: a package called %s collects what belongs elsewhere: name it by what it does", dir, f.ast.Name.Name))
		}
	}
	return problems
}

func checkFile(f source) []string {
	if f.test {
		return checkTestFile(f) // tests may import anything
	}
	var problems []string
	report := func(pos token.Pos, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: ", f.path, f.fset.Position(pos).Line)+fmt.Sprintf(format, args...))
	}
	dir := path.Dir(f.path)
	r, ok := ruleFor(dir)
	if !ok {
		report(f.ast.Package, "the folder %s has no rule in arch_test.go: say there what it may import, and why", dir)
		return problems
	}
	if n := f.lines(); n > maxLines && !ast.IsGenerated(f.ast) {
		report(f.ast.Package, "the file has %d lines: expected at most %d, so cut it where its subjects part", n, maxLines)
	}
	for _, imp := range f.ast.Imports {
		name, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			report(imp.Pos(), "unreadable import %s", imp.Path.Value)
			continue
		}
		if problem := judgeImport(dir, r, name); problem != "" {
			report(imp.Pos(), "%s", problem)
		}
	}
	if r.pure {
		for _, pos := range clockUses(f.ast) {
			report(pos, "%s is pure and is told the time: it must not read the clock or wait (%s)", dir, r.reason)
		}
	}
	return problems
}

// checkTestFile makes sure that no test gets lost: what the race detector's pass leaves out must be found by the pass for
// allocations, which goes by names.
func checkTestFile(f source) []string {
	excluded := false
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			excluded = excluded || c.Pos() < f.ast.Package && strings.HasPrefix(c.Text, "//go:build ") && strings.Contains(c.Text, "!race")
		}
	}
	if !excluded {
		return nil
	}
	var problems []string
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && !strings.Contains(fn.Name.Name, "Alloc") {
			problems = append(problems, fmt.Sprintf("%s:%d: %s is not built under the race detector and has no Alloc in its name: `make test` would never run it",
				f.path, f.fset.Position(fn.Pos()).Line, fn.Name.Name))
		}
	}
	return problems
}

// judgeImport returns why a package in dir must not import name, or "".
func judgeImport(dir string, r rule, name string) string {
	if sub, ours := cutModule(name); ours {
		for _, e := range exceptFrom {
			if matches(e.packages, dir) && matches(e.imports, sub) {
				return fmt.Sprintf("%s must not import %s: %s", dir, sub, e.reason)
			}
		}
		allowed := slices.ContainsFunc(r.ours, func(p string) bool {
			if p == "*" {
				return !strings.HasPrefix(sub, "bench/") && sub != "bench" && !strings.Contains("/"+sub+"/", "/cmd/")
			}
			return matches(p, sub)
		})
		// The packages below a program are its own.
		if !allowed && !(strings.Contains("/"+dir+"/", "/cmd/") && strings.HasPrefix(sub, dir+"/")) {
			return fmt.Sprintf("%s must not import %s: %s (it may import of ours: %s)", dir, sub, r.reason, listOf(r.ours))
		}
		return ""
	}
	if root, _, _ := strings.Cut(name, "/"); strings.Contains(root, ".") {
		return judgeThirdParty(dir, r, name)
	}
	if name == "testing" || strings.HasPrefix(name, "testing/") {
		if !strings.HasSuffix(dir, "test") {
			return fmt.Sprintf("%s must not import %s outside tests: it would be part of the product", dir, name)
		}
		return ""
	}
	for _, b := range bans {
		for _, p := range b.imports {
			if matches(b.packages, dir) && (name == p || strings.HasPrefix(name, p+"/")) {
				return fmt.Sprintf("%s must not import %s: %s", dir, name, b.reason)
			}
		}
	}
	if r.pure {
		for _, p := range impure {
			if name == p || strings.HasPrefix(name, p+"/") {
				return fmt.Sprintf("%s is pure and must not import %s: %s", dir, name, r.reason)
			}
		}
	}
	return ""
}

func judgeThirdParty(dir string, r rule, name string) string {
	for _, h := range homes {
		if name != h.dependency && !strings.HasPrefix(name, h.dependency+"/") {
			continue
		}
		if r.pure {
			return fmt.Sprintf("%s is pure and must not import %s: no third party in a pure package (%s)", dir, name, r.reason)
		}
		if slices.ContainsFunc(h.packages, func(p string) bool { return matches(p, dir) }) {
			return ""
		}
		return fmt.Sprintf("%s must not import %s: %s (its home: %s)", dir, name, h.reason, listOf(h.packages))
	}
	return fmt.Sprintf("%s imports %s, which has no home in arch_test.go: say there where it lives, and why we need it", dir, name)
}

// clockUses finds the functions of package time that read the clock or wait, under whatever name time is imported.
func clockUses(f *ast.File) []token.Pos {
	local := ""
	for _, imp := range f.Imports {
		if imp.Path.Value == `"time"` {
			local = "time"
			if imp.Name != nil {
				local = imp.Name.Name
			}
		}
	}
	if local == "" {
		return nil
	}
	var found []token.Pos
	if local == "." {
		return []token.Pos{f.Package}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(clockReads, sel.Sel.Name) {
				found = append(found, sel.Pos())
			}
		}
		return true
	})
	return found
}

func ruleFor(dir string) (rule, bool) {
	for _, r := range rules {
		if matches(r.packages, dir) {
			return r, true
		}
	}
	return rule{}, false
}

func matches(pattern, dir string) bool {
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == tree || strings.HasPrefix(dir, tree+"/")
	}
	return dir == pattern
}

func cutModule(name string) (sub string, ours bool) {
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

func listOf(s []string) string {
	if len(s) == 0 {
		return "nothing"
	}
	return strings.Join(s, ", ")
}

func sortedKeys(m map[string]source) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// The rules judge themselves: a package that breaks one is caught, with the reason in the message, and one that keeps them is
// left alone.
func TestRulesCatchWhatTheyShould(t *testing.T) {
	const doc = "// Package p is long enough a comment to pass for an essay, for it says what p promises, to whom it promises that, and what p never does.\n"
	long := doc + "package p\n" + strings.Repeat("var _ = 0\n", maxLines+1)
	for _, c := range []struct {
		name, path, src string
		want            string // part of the only problem; "" for none
	}{
		{"api imports ours", "api/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/scheduler"`, "would close a circle"},
		{"api stays with the standard library", "api/doc.go", doc + `package p; import _ "math"`, ""},
		{"manifest reads YAML", "api/manifest/doc.go", doc + `package p; import (_ "github.com/xebec-serving/xebec/api"; _ "go.yaml.in/yaml/v3"; _ "os")`, ""},
		{"shm learns of models", "shm/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/api"`, "knows no models"},
		{"the core takes a lock", "scheduler/doc.go", doc + `package p; import _ "sync"`, "is pure and must not import sync"},
		{"the core counts atomically", "scheduler/doc.go", doc + `package p; import _ "sync/atomic"`, "is pure and must not import sync/atomic"},
		{"the core logs", "scheduler/doc.go", doc + `package p; import _ "log/slog"`, "is pure and must not import log/slog"},
		{"the core reads the clock", "scheduler/doc.go", doc + `package p; import "time"; var _ = time.Now()`, "must not read the clock"},
		{"under another name", "scheduler/doc.go", doc + `package p; import clock "time"; var _ = clock.After(1)`, "must not read the clock"},
		{"a duration is no clock", "scheduler/doc.go", doc + `package p; import "time"; const d = 3 * time.Second`, ""},
		{"the core takes a library", "scheduler/doc.go", doc + `package p; import _ "go.uber.org/zap"`, "no third party in a pure package"},
		{"the core knows its driver", "scheduler/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/scheduler/driver"`, "it may import of ours: api"},
		{"the driver has a clock", "scheduler/driver/doc.go", doc + `package p; import "time"; import _ "sync"; var _ = time.Now`, ""},
		{"the codec opens a socket", "worker/wire/doc.go", doc + `package p; import _ "net"`, "is pure and must not import net"},
		{"netip is net too", "worker/wire/doc.go", doc + `package p; import _ "net/netip"`, "is pure and must not import net/netip"},
		{"worker opens a socket", "worker/doc.go", doc + `package p; import _ "net"`, "is pure and must not import net"},
		{"worker knows a transport", "worker/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "would be every transport's"},
		{"worker speaks of segments", "worker/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/shm"`, "would be every transport's"},
		{"a transport asks the scheduler", "worker/local/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/scheduler"`, "is not its business"},
		{"another transport maps memory", "worker/remote/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/shm"`, "shared memory is package local's"},
		{"transports lean on each other", "worker/remote/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "it may import of ours: api, worker, worker/wire"},
		{"memory takes the codec", "worker/memory/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/wire"`, "need neither the protocol"},
		{"a binding leans on the gateway's side", "worker/bindings/go/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "would hide defects"},
		{"containers import workers", "containers/process/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "independent of what they are sent"},
		{"the mux knows a runtime", "containers/mux/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/containers/process"`, "would come with every mux"},
		{"the mux knows what it must", "containers/mux/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/containers"`, ""},
		{"the path opens a socket", "gateway/query/doc.go", doc + `package p; import _ "net"`, "neither connections nor the bytes"},
		{"the path answers HTTP", "gateway/query/doc.go", doc + `package p; import _ "github.com/cloudwego/hertz/pkg/app"`, "nothing behind it sees a Hertz type"},
		{"the path knows a dialect", "gateway/query/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/dialect/native"`, "the same for every protocol"},
		{"the path reads JSON", "gateway/query/doc.go", doc + `package p; import _ "encoding/json"`, "neither connections nor the bytes"},
		{"a dialect knows its transport", "gateway/dialect/oip/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/http"`, "it serves any transport"},
		{"a dialect leans on another", "gateway/dialect/oip/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/dialect/native"`, "it can be left out"},
		{"a dialect parses JSON", "gateway/dialect/oip/doc.go", doc + `package p; import _ "encoding/json"`, ""},
		{"the edge picks a dialect", "gateway/http/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/dialect/oip"`, "for the composition to say"},
		{"the gateway finds its own workers", "gateway/admin/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "only gateway/server, the composition"},
		{"the composition may", "gateway/server/doc.go", doc + `package p; import (_ "github.com/xebec-serving/xebec/worker/local"; _ "github.com/xebec-serving/xebec/containers/process")`, ""},
		{"but not map memory", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/shm"`, "lies behind worker"},
		{"nor serve through Go functions", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/memory"`, "is for tests"},
		{"nor import a program", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/cmd/xebec"`, "must not import gateway/cmd/xebec"},
		{"nobody imports bench", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/bench/loadgen"`, "must not import bench/loadgen"},
		{"hertz behind the gateway", "worker/local/doc.go", doc + `package p; import _ "github.com/cloudwego/hertz/pkg/app"`, "nothing behind it sees a Hertz type"},
		{"a dependency without a home", "gateway/doc.go", doc + `package p; import _ "example.com/left/pad"`, "has no home"},
		{"a test library in the product", "gateway/doc.go", doc + `package p; import _ "go.uber.org/goleak"`, "tests only"},
		{"testing in the product", "gateway/doc.go", doc + `package p; import _ "testing"`, "would be part of the product"},
		{"testing in a conformance suite", "worker/workertest/doc.go", doc + `package p; import _ "testing"`, ""},
		{"tests import anything", "shm/x_test.go", `package p; import _ "example.com/left/pad"`, ""},
		{"a test that nobody runs", "shm/x_test.go", "//go:build linux && !race\n\npackage p\nfunc TestSpeed() {}\nfunc BenchmarkSpeed() {}", "would never run it"},
		{"an allocation test", "shm/x_test.go", "//go:build !race\n\npackage p\nfunc TestPushDoesNotAllocate() {}", ""},
		{"a folder that nobody planned", "misc/doc.go", doc + `package p`, "has no rule"},
		{"no essay", "shm/ring.go", `package p`, "expected a doc.go"},
		{"an essay of one line", "shm/doc.go", "// Package p is p.\npackage p", "expected a doc.go"},
		{"a program without a word", "gateway/cmd/xebec/main.go", `package main`, "has no comment"},
		{"a vague name", "gateway/internal/util/doc.go", doc + `package util`, "collects what belongs elsewhere"},
		{"a file nobody reads", "shm/doc.go", long, "lines: expected at most"},
		{"unless it is generated", "shm/doc.go", "// Code generated by hand. DO NOT EDIT.\n\n" + long, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, c.path, c.src, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			problems := checkAll([]source{{c.path, f, fset, strings.HasSuffix(c.path, "_test.go")}})
			switch {
			case c.want == "" && len(problems) > 0:
				t.Errorf("unexpected: %s", strings.Join(problems, "\n"))
			case c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.want)):
				t.Errorf("got %q, want one problem with %q", problems, c.want)
			}
		})
	}
}
