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

// A rule says which packages of this module the non-test files of some packages may import. The first rule whose pattern
// matches a package applies. A package without a rule is a problem, so that folders are not added by accident.
//
// Patterns are paths below the module: "a/b" is that package, "a/b/..." is that package and everything under it. "*" means
// any package of the module except programs (package main) and bench.
type rule struct {
	packages string
	ours     []string
	pure     bool
	reason   string
}

var rules = []rule{
	{".", nil, true, "the root holds no code: importable packages live in folders"},

	{"api/manifest/...", []string{"api"}, false, "it reads and writes specs; the CLI uses it without a gateway"},
	{"api/inferencepb", nil, false, "it is generated: messages and stubs, no behaviour"},
	{"api/tensorflowpb", nil, false, "it is generated: messages and stubs, no behaviour"},
	{"api/xebecpb", nil, false, "it is generated: messages and stubs, no behaviour"},
	{"api/client/...", nil, false, "apps import it: it brings along nothing of a gateway"},
	{"api/...", []string{"api/..."}, true, "every package imports api, so an import of another package of ours would make a cycle"},

	{"shm/...", []string{"shm/..."}, false, "shared memory knows nothing of models: it can be checked and reused on its own"},

	{"scheduler", []string{"api"}, true, "the core is a state machine: events and now in, actions out; it is tested and simulated without a clock"},
	{"scheduler/timer", []string{"api"}, true, "the timing wheel is a data structure: its caller passes the time"},
	{"scheduler/planner", []string{"api", "scheduler"}, true, "one snapshot in, one plan out"},
	{"scheduler/autoscale/...", []string{"api", "scheduler/autoscale"}, true, "one snapshot in, one decision out"},
	{"scheduler/placement/...", []string{"api"}, true, "demands and resources in, one placement out"},
	{"scheduler/sim/...", []string{"api", "scheduler", "scheduler/autoscale", "scheduler/autoscale/...", "scheduler/planner", "scheduler/timer"}, true, "the simulator drives only the pure parts, under a virtual clock"},
	{"scheduler/driver/...", []string{"api", "scheduler", "scheduler/autoscale", "scheduler/planner", "scheduler/timer"}, false,
		"the driver gives the core goroutines and a clock; it reaches replicas through an interface of its own, whatever the transport"},

	{"worker/wire/...", []string{"api"}, true, "the codec is bytes in, values out, so it is fuzzed without a socket"},
	{"worker/bindings/...", []string{"api", "api/busypoll", "shm", "worker/wire", "worker/bindings/..."}, false,
		"a binding is the worker's side of the protocol: code shared with the gateway's side would hide defects of both"},
	{"worker/workertest/...", []string{"api", "shm", "worker", "worker/local", "worker/wire", "worker/workertest/..."}, false,
		"the conformance suite tests bindings from outside, through the protocol"},
	{"worker", []string{"api"}, true, "it defines a replica independently of the transport: a type of one transport here would bind all transports"},
	{"worker/memory/...", []string{"api", "worker"}, false, "it shows that the interfaces of worker need neither the protocol nor shared memory"},
	{"worker/local/...", []string{"api", "api/busypoll", "shm", "worker", "worker/wire"}, false,
		"a transport only carries batches: it knows neither how they are formed nor what answers are used for"},
	{"worker/table", []string{"api", "worker/bindings/go"}, false, "it is a worker: what starts it, and who sends it batches, is beyond the protocol"},
	{"worker/runtimes", []string{"api"}, false, "it recognises files and holds programs: who runs them, and where, is for others to say"},
	{"worker/...", []string{"api", "worker", "worker/wire"}, false,
		"a transport only carries batches: it knows neither how they are formed nor what answers are used for; only worker/local uses shared memory"},

	{"containers/mux/...", []string{"containers"}, false, "it chooses between runtimes that its caller passes in: a runtime imported here would be linked into every user of the mux"},
	{"containers/foreground", []string{"api", "containers"}, false, "it runs a model in front of its author: the other runtimes keep models apart, and share nothing with it"},
	{"containers/...", []string{"api", "containers/..."}, false, "how a replica runs is independent of the batches that it is sent"},

	{"gateway/selection/...", []string{"api"}, true, "a selection policy is arithmetic: state in, choice out"},
	{"gateway/cache/...", []string{"api"}, false, "the cache keeps predictions, whatever produced them"},
	{"gateway/internal/state/...", []string{"api", "gateway/internal/state/..."}, false, "the store keeps values by name and does not know what they mean"},
	{"gateway/learned/...", []string{"api", "gateway/selection", "gateway/internal/state"}, false, "it keeps the states of policies in memory and writes them to a store; it knows nothing of functions and queries"},
	{"gateway/registry", []string{"api"}, true, "which version to load and which to serve is arithmetic over states: tests walk and simulate it without a clock"},
	{"gateway/registry/watch/...", []string{"api", "api/manifest"}, false, "a source reports which manifests exist; the registry decides what to do with them"},
	{"gateway/registry/fetch", []string{"api", "gateway/registry/watch"}, false, "a source reports which manifests exist; how archives are unpacked is for its caller to say"},
	{"gateway/drift/...", []string{"api"}, false, "it compares distributions of numbers and does not know which part served them"},
	{"gateway/quality/...", []string{"api", "gateway/internal/tensorjson"}, false, "it reads recorded queries and judges answers; its caller evaluates the queries"},
	{"gateway/inferlog/...", []string{"api", "gateway/internal/tensorjson"}, false, "it writes and reads records; its caller decides what is logged"},
	{"gateway/internal/secret", nil, false, "it reads files and checks them: which port trusts them is for others to say"},
	{"gateway/internal/browser", nil, false, "it compares headers: what a port does with a request is the port's to decide"},
	{"gateway/internal/numerals", nil, true, "it writes numbers and does not know what they count"},
	{"gateway/internal/terminal/...", []string{"gateway/internal/terminal"}, false, "it holds a terminal and does not know what is drawn on it"},
	{"gateway/internal/...", []string{"api", "gateway/internal/..."}, false, "these are tools of the gateway, each usable without the rest of it"},
	{"gateway/forecast", []string{"api", "gateway/internal/numerals", "scheduler", "scheduler/autoscale", "scheduler/sim"}, false,
		"it simulates: its caller reads logs and asks gateways, so a plan can be made without either"},
	{"gateway/replay", []string{"api", "gateway/inferlog", "gateway/internal/tensorjson"}, false,
		"it sees a gateway only through requests: code shared with the gateway would hide what clients see"},
	{"gateway/top", []string{"api", "gateway/internal/numerals", "gateway/internal/terminal"}, false,
		"it shows what the admin API reports, which is all there is of a gateway on another host"},
	{"gateway/query", []string{"api", "scheduler", "scheduler/driver", "gateway/cache", "gateway/drift", "gateway/inferlog", "gateway/internal/obs", "gateway/selection"}, false,
		"the query path is the same for every protocol and for callers in the process: it knows neither protocols nor runtimes"},
	{"gateway/query/querytest", []string{"api", "scheduler", "scheduler/driver"}, false, "it fakes a scheduler for the tests of gateway/query, so importing gateway/query would make a cycle"},
	{"gateway/dialect", []string{"api", "gateway/query", "gateway/internal/tensorjson"}, false, "it defines what a dialect is and knows no particular one"},
	{"gateway/dialect/calls", []string{"api", "gateway/dialect", "gateway/query", "gateway/internal/tensorjson", "worker/wire"}, false,
		"its clients are workers, so it reads and writes the blocks of their protocol; it knows no transport of theirs"},
	{"gateway/dialect/...", []string{"api", "gateway/dialect", "gateway/query", "gateway/selection", "gateway/internal/classify", "gateway/internal/tensorjson"}, false,
		"a dialect parses and renders: it works with any transport, so it imports none, and it can be left out, so no other dialect imports it"},
	{"gateway/http/http1", []string{"api"}, true, "the parser is a state machine: bytes and the time in, events out; it is fuzzed without a socket and driven by any poller"},
	{"gateway/http/h2", []string{"api"}, false, "it turns requests of HTTP/2 into those of Hertz's engine: what they mean is for the engine's routes"},
	{"gateway/http/coding", []string{"api"}, false, "it turns bytes into bytes: what a body is for, and which connection it came from, is for others to know"},
	{"gateway/http/poll", []string{"api", "api/busypoll", "scheduler/timer"}, false, "it reads sockets for any owner: what comes on them is for others to know"},
	{"gateway/docs", nil, false, "it makes a page of bytes: which port serves it is the port's to decide"},
	{"gateway/http", []string{"api", "api/spec", "gateway/dialect", "gateway/docs", "gateway/http/...", "gateway/internal/accept", "gateway/internal/browser", "gateway/query"}, false, "the HTTP edge serves any dialect: gateway/server, the composition, chooses which"},
	{"gateway/grpc", []string{"api", "api/inferencepb", "api/tensorflowpb", "api/xebecpb", "gateway/dialect", "gateway/dialect/tfserving", "gateway/grpc/...", "gateway/internal/tensorjson", "gateway/query"}, false,
		"gRPC is a port beside HTTP, with the same path behind it: gateway/server, the composition, gives it its memory and its limits"},
	{"gateway/grpc/meter", []string{"api"}, true, "it is a state machine over the bytes of a connection: it is fuzzed without a socket"},
	{"gateway/grpc/oipwire", []string{"api", "gateway/internal/classify"}, true, "it turns bytes into values and back: it is fuzzed without a socket, and knows no server"},
	{"gateway/grpc/tfwire", []string{"api", "api/tensorflowpb", "gateway/internal/tensorjson"}, true, "it turns messages into values and back: it is fuzzed without a socket, and knows no server"},
	{"gateway/control/capacity", []string{"api", "containers", "containers/node", "scheduler", "scheduler/autoscale", "scheduler/driver", "scheduler/placement", "gateway/internal/numerals", "gateway/internal/obs", "gateway/query"}, false,
		"it counts replicas: a version is an interface to it, and what is declared or served is for others to decide"},
	{"gateway/control/deployment", []string{"api", "api/busypoll", "api/manifest", "containers", "containers/snapshot", "scheduler", "scheduler/driver", "worker", "gateway/cache", "gateway/control/capacity", "gateway/internal/numerals", "gateway/internal/obs", "gateway/internal/secret", "gateway/query"}, false,
		"it is one version and what serves it: it knows no other version, no function and no transport"},
	{"gateway/control/versions", []string{"api", "gateway/control/deployment", "gateway/drift", "gateway/internal/obs", "gateway/learned", "gateway/quality", "gateway/query", "gateway/registry", "gateway/selection", "scheduler/driver"}, false,
		"it moves versions through their lives: functions are an interface to it, and what is declared comes from outside"},
	{"gateway/control/functions", []string{"api", "gateway/control/deployment", "gateway/control/versions", "gateway/inferlog", "gateway/internal/numerals", "gateway/internal/obs", "gateway/learned", "gateway/query", "gateway/selection", "scheduler/driver", "scheduler/planner"}, false,
		"it has functions and the table of names: whether a declaration is allowed has been judged before"},
	{"gateway/control/declarations", []string{"api", "api/manifest", "containers/snapshot", "gateway/control/...", "gateway/internal/state", "gateway/registry", "gateway/registry/watch", "gateway/selection"}, false,
		"it decides what is declared and tells the others: it starts nothing and answers no query"},
	{"gateway/control/learning", []string{"api", "gateway/internal/numerals", "gateway/internal/state", "gateway/learned", "gateway/selection"}, false,
		"it shows and edits what the table of learned states has: functions are a name and a spec to it"},
	{"gateway/control/measured", []string{"api", "gateway/internal/numerals", "gateway/internal/state"}, false,
		"it keeps figures: versions are an interface to it, and what is done with a figure is for others to decide"},
	{"gateway/control/status", []string{"api", "containers", "gateway/cache", "gateway/control/...", "gateway/inferlog", "gateway/internal/obs", "gateway/internal/state", "gateway/learned", "gateway/query", "scheduler", "scheduler/driver", "scheduler/planner"}, false,
		"it reads the others and changes nothing, so nothing depends on it but the composition"},
	{"gateway/takeover", nil, false, "it is a protocol between two processes: what they pass on is bytes to it"},
	{"gateway/admin/clipper", []string{"api", "api/manifest"}, false, "it translates calls of Clipper: package admin has the routes, and decides who may call"},
	{"gateway/admin", []string{"api", "api/manifest", "gateway/admin/clipper", "gateway/internal/..."}, false,
		"only gateway/server, the composition, imports transports and containers; the admin API uses them through its Control"},
	{"gateway/server/...", []string{"*", "worker/bindings/python"}, false, ""}, // the files of the Python binding, for environments
	{"gateway/cmd/...", []string{"*"}, false, ""},
	{"gateway/...", []string{"api", "api/manifest", "scheduler", "scheduler/driver", "gateway/query", "gateway/admin", "gateway/cache", "gateway/drift", "gateway/inferlog", "gateway/internal/...", "gateway/learned", "gateway/selection"}, false,
		"only gateway/server, the composition, imports transports and containers; the rest of the gateway uses them through interfaces"},

	{"bench/...", []string{"*", "bench/..."}, false, ""},
}

// exceptFrom takes packages out of "*" and other patterns; a rule may still name one of them. The composition uses workers and containers, never the shared memory below them.
var exceptFrom = []struct{ packages, imports, reason string }{
	{"gateway/...", "shm/...", "shared memory lies behind worker: no other package maps, parses or trusts it"},
	{"gateway/...", "worker/wire/...", "the wire protocol lies behind worker"},
	{"gateway/...", "worker/bindings/...", "bindings are for workers, which are separate processes"},
	{"gateway/...", "worker/memory/...", "the in-memory transport is for tests"},
	{"gateway/...", "containers/containerstest", "its replicas run nothing: they are for tests"},
}

// bans keep packages of the standard library, and those below them, out of packages that are not pure but must not use these.
var bans = []struct {
	packages string
	imports  []string
	reason   string
}{
	{"gateway/query/...", []string{"net", "encoding/json"}, "the query path sees neither connections nor the bytes of a protocol"},
	{"gateway/dialect/...", []string{"net", "os", "syscall"}, "a dialect sees an exchange, not a connection"},
}

// A home lists the packages whose non-test files may import a third-party dependency, or any package below its path.
type home struct {
	dependency string
	packages   []string
	reason     string
}

var homes = []home{
	{"github.com/cloudwego/hertz", []string{"gateway/http", "gateway/http/h2", "gateway/admin", "gateway/server", "bench/..."}, "HTTP ends at the gateway's edge: no package behind it sees a Hertz type"},
	{"github.com/cloudwego/netpoll", []string{"worker/...", "bench/..."}, "worker owns the workers' sockets"},
	{"github.com/prometheus", []string{"gateway/internal/obs/..."}, "parts count in plain counters, and one package renders them as metrics"},
	{"go.yaml.in/yaml/v3", []string{"api/manifest", "gateway/cmd/..."}, "one package reads and writes the YAML format; the CLI prints it"},
	{"github.com/pelletier/go-toml/v2", []string{"containers/venv"}, "one package reads pyproject.toml"},
	{"github.com/klauspost/compress", []string{"worker/remote", "gateway/http/coding", "gateway/inferlog", "gateway/quality"}, "worker compresses frames; the gateway compresses bodies, logs and recorded queries"},
	{"github.com/andybalholm/brotli", []string{"gateway/http/coding"}, "one package decodes what clients compress"},
	{"google.golang.org/grpc", []string{"api/inferencepb", "api/tensorflowpb", "api/xebecpb", "gateway/grpc", "bench/..."}, "gRPC is one package's: the rest of the gateway sees neither its server nor its statuses"},
	{"google.golang.org/protobuf", []string{"api/inferencepb", "api/tensorflowpb", "api/xebecpb", "gateway/grpc", "bench/..."}, "messages of protocol buffers end where gRPC does"},
	{"golang.org/x/net/http2", []string{"gateway/http/h2"}, "HTTP/2 is the edge's, and one package's"},
	{"golang.org/x/sys", []string{"shm", "containers/process/...", "containers/cgroup/...", "containers/docker", "containers/node", "containers/snapshot", "containers/venv", "worker/local", "worker/bindings/go/...", "gateway/http", "gateway/http/poll", "gateway/server", "gateway/takeover", "gateway/internal/...", "bench/..."}, "a system call is made by the package that owns the file descriptor"},
	{"github.com/landlock-lsm/go-landlock", []string{"containers/process/..."}, "it restricts processes that are about to become workers"},
	{"github.com/elastic/go-seccomp-bpf", []string{"containers/process/..."}, "it assembles the filter of a worker's system calls"},
	{"golang.org/x/net/bpf", []string{"containers/process/..."}, "it encodes that filter"},
	{"github.com/redis/go-redis/v9", []string{"gateway/internal/state/..."}, "state shared between gateways goes through the store"},
	{"go.etcd.io/bbolt", []string{"gateway/internal/state/..."}, "state that outlives the gateway goes through the store"},
	{"github.com/zeebo/xxh3", []string{"gateway/query", "gateway/cache", "gateway/learned"}, "it hashes inputs and contexts for tables in memory; entries are compared in full, so a collision is harmless"},
	{"github.com/maypok86/otter/v2", []string{"bench/..."}, "a benchmark compares our cache with it"},
	{"github.com/moby/moby", []string{"containers/docker/..."}, "the container engine is one way of running replicas: no other package talks to it"},
	{"github.com/containerd/errdefs", []string{"containers/docker/..."}, "it classifies the errors of the container engine"},
	{"github.com/distribution/reference", []string{"containers/docker/..."}, "it reads the names of images as the container engine does"},
	{"go.uber.org/zap", []string{"gateway/server", "gateway/internal/secret", "gateway/control/...", "gateway/cmd/...", "gateway/admin", "gateway/inferlog", "gateway/learned", "gateway/registry/watch", "scheduler/driver", "worker/local", "containers/..."}, "the composition makes loggers and passes them to drivers; pure packages do not log"},
	{"github.com/coreos/go-systemd/v22", []string{"gateway/cmd/..."}, "a service manager starts programs, never libraries"},
	{"github.com/spf13/cobra", []string{"gateway/cmd/..."}, "flags belong to programs, never to libraries"},
	{"github.com/spf13/pflag", []string{"gateway/cmd/..."}, "the errors of flags that cobra passes on"},
	{"github.com/HdrHistogram/hdrhistogram-go", []string{"bench/..."}, "only the load generator uses it"},
	{"gonum.org/v1/plot", []string{"bench/..."}, "figures are drawn by bench"},
	{"gonum.org/v1/gonum", []string{"bench/..."}, "intervals of measurements need the distributions of Student and of Clopper and Pearson"},
	{"pgregory.net/rapid", []string{"worker/workertest/..."}, "tests only"},
	{"github.com/getkin/kin-openapi", nil, "tests only"},
	{"github.com/google/go-cmp", []string{"worker/workertest/...", "bench/internal/resultstest"}, "tests only"},
	{"github.com/itchyny/gojq", nil, "tests only"},
	{"go.uber.org/goleak", nil, "tests only"},
	{"github.com/cockroachdb/datadriven", nil, "tests only"},
}

// impure and clockReads are what a pure package must not import from the standard library, and must not call in package time.
var (
	impure      = []string{"net", "os", "log", "sync", "syscall", "runtime"}
	clockReads  = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	vagueNames  = []string{"util", "utils", "common", "types", "helpers", "misc", "base"}
	maxLines    = 700 // a file that a newcomer reads in one sitting; applies to neither generated files nor tests
	aimedLines  = 500
	minDocBytes = 120 // a shorter package comment says no more than the name
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
			t.Logf("%s has %d lines: aim at %d or fewer", f.path, n, aimedLines)
		}
	}
}

// checkAll returns the problems found, one sentence each, in the order of the files.
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
			problems = append(problems, fmt.Sprintf("%s: the program has no comment that says what it does: expected one of at least %d bytes above `package main`", dir, minDocBytes))
		} else if !documented[dir] {
			problems = append(problems, fmt.Sprintf("%s: expected a doc.go whose package comment says what the package promises, to which callers, and what it never does", dir))
		}
		if slices.Contains(vagueNames, f.ast.Name.Name) {
			problems = append(problems, fmt.Sprintf("%s: a package called %s attracts code that belongs elsewhere: name the package after what it does", dir, f.ast.Name.Name))
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
		report(f.ast.Package, "the folder %s has no rule in arch_test.go: add one that says what it may import, and why", dir)
		return problems
	}
	if n := f.lines(); n > maxLines && !ast.IsGenerated(f.ast) {
		report(f.ast.Package, "the file has %d lines: expected at most %d, so split it by subject", n, maxLines)
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
			report(pos, "%s is pure and takes the time as an argument: it must not read the clock or wait (%s)", dir, r.reason)
		}
	}
	return problems
}

// checkTestFile makes sure that every test runs: tests that are not built under the race detector must be in the pass that
// counts allocations, which selects tests by name.
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
			if matches(e.packages, dir) && matches(e.imports, sub) && !slices.Contains(r.ours, sub) {
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
			return fmt.Sprintf("%s must not import %s: %s (of this module it may import: %s)", dir, sub, r.reason, listOf(r.ours))
		}
		return ""
	}
	if root, _, _ := strings.Cut(name, "/"); strings.Contains(root, ".") {
		return judgeThirdParty(dir, r, name)
	}
	if name == "testing" || strings.HasPrefix(name, "testing/") {
		if !strings.HasSuffix(dir, "test") {
			return fmt.Sprintf("%s must not import %s outside tests: it would be linked into the product", dir, name)
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
	if r.pure && name != "net/url" { // which parses texts and opens nothing
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
			return fmt.Sprintf("%s is pure and must not import %s: a pure package has no third-party dependencies (%s)", dir, name, r.reason)
		}
		if slices.ContainsFunc(h.packages, func(p string) bool { return matches(p, dir) }) {
			return ""
		}
		return fmt.Sprintf("%s must not import %s: %s (allowed in: %s)", dir, name, h.reason, listOf(h.packages))
	}
	return fmt.Sprintf("%s imports %s, which has no home in arch_test.go: add one that says which packages may import it, and why we need it", dir, name)
}

// clockUses finds uses of the functions of package time that read the clock or wait, also if time is imported under another name.
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

// TestArchitectureRules: a package that breaks a rule is reported with the rule's reason; a package that keeps the rules is not.
func TestArchitectureRules(t *testing.T) {
	const doc = "// Package p has a comment that is long enough to pass for an essay: it says what p promises, to which callers, and what p never does.\n"
	long := doc + "package p\n" + strings.Repeat("var _ = 0\n", maxLines+1)
	for _, c := range []struct {
		name, path, src string
		want            string // part of the only problem; "" for none
	}{
		{"api imports ours", "api/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/scheduler"`, "would make a cycle"},
		{"api stays with the standard library", "api/doc.go", doc + `package p; import _ "math"`, ""},
		{"manifest reads YAML", "api/manifest/doc.go", doc + `package p; import (_ "github.com/xebec-serving/xebec/api"; _ "go.yaml.in/yaml/v3"; _ "os")`, ""},
		{"shm knows models", "shm/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/api"`, "knows nothing of models"},
		{"the core takes a lock", "scheduler/doc.go", doc + `package p; import _ "sync"`, "is pure and must not import sync"},
		{"the core counts atomically", "scheduler/doc.go", doc + `package p; import _ "sync/atomic"`, "is pure and must not import sync/atomic"},
		{"the core logs", "scheduler/doc.go", doc + `package p; import _ "log/slog"`, "is pure and must not import log/slog"},
		{"the core reads the clock", "scheduler/doc.go", doc + `package p; import "time"; var _ = time.Now()`, "must not read the clock"},
		{"the core reads the clock under another name", "scheduler/doc.go", doc + `package p; import clock "time"; var _ = clock.After(1)`, "must not read the clock"},
		{"a duration is not a clock", "scheduler/doc.go", doc + `package p; import "time"; const d = 3 * time.Second`, ""},
		{"the core uses a library", "scheduler/doc.go", doc + `package p; import _ "go.uber.org/zap"`, "a pure package has no third-party dependencies"},
		{"the core knows its driver", "scheduler/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/scheduler/driver"`, "of this module it may import: api"},
		{"the driver has a clock", "scheduler/driver/doc.go", doc + `package p; import "time"; import _ "sync"; var _ = time.Now`, ""},
		{"the codec opens a socket", "worker/wire/doc.go", doc + `package p; import _ "net"`, "is pure and must not import net"},
		{"the codec imports net/netip", "worker/wire/doc.go", doc + `package p; import _ "net/netip"`, "is pure and must not import net/netip"},
		{"worker opens a socket", "worker/doc.go", doc + `package p; import _ "net"`, "is pure and must not import net"},
		{"worker knows a transport", "worker/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "would bind all transports"},
		{"worker knows segments", "worker/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/shm"`, "would bind all transports"},
		{"a transport imports the scheduler", "worker/local/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/scheduler"`, "only carries batches"},
		{"another transport maps memory", "worker/remote/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/shm"`, "only worker/local uses shared memory"},
		{"a transport imports another", "worker/remote/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "of this module it may import: api, worker, worker/wire"},
		{"memory imports the codec", "worker/memory/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/wire"`, "need neither the protocol"},
		{"a binding imports the gateway's side", "worker/bindings/go/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "would hide defects"},
		{"containers import workers", "containers/process/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "independent of the batches"},
		{"the mux knows a runtime", "containers/mux/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/containers/process"`, "every user of the mux"},
		{"the mux knows containers", "containers/mux/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/containers"`, ""},
		{"the path opens a socket", "gateway/query/doc.go", doc + `package p; import _ "net"`, "neither connections nor the bytes"},
		{"the path answers HTTP", "gateway/query/doc.go", doc + `package p; import _ "github.com/cloudwego/hertz/pkg/app"`, "no package behind it sees a Hertz type"},
		{"the path knows a dialect", "gateway/query/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/dialect/native"`, "the same for every protocol"},
		{"the path reads JSON", "gateway/query/doc.go", doc + `package p; import _ "encoding/json"`, "neither connections nor the bytes"},
		{"a dialect knows its transport", "gateway/dialect/oip/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/http"`, "it works with any transport"},
		{"a dialect imports another", "gateway/dialect/oip/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/dialect/native"`, "it can be left out"},
		{"a dialect parses JSON", "gateway/dialect/oip/doc.go", doc + `package p; import _ "encoding/json"`, ""},
		{"the edge imports a dialect", "gateway/http/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/dialect/oip"`, "the composition, chooses which"},
		{"the admin API imports a transport", "gateway/admin/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/local"`, "only gateway/server, the composition"},
		{"the composition imports transports and runtimes", "gateway/server/doc.go", doc + `package p; import (_ "github.com/xebec-serving/xebec/worker/local"; _ "github.com/xebec-serving/xebec/containers/process")`, ""},
		{"the composition maps memory", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/shm"`, "lies behind worker"},
		{"the composition imports the in-memory transport", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/worker/memory"`, "is for tests"},
		{"the composition imports a program", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/gateway/cmd/xebec"`, "must not import gateway/cmd/xebec"},
		{"the composition imports bench", "gateway/server/doc.go", doc + `package p; import _ "github.com/xebec-serving/xebec/bench/loadgen"`, "must not import bench/loadgen"},
		{"hertz behind the gateway", "worker/local/doc.go", doc + `package p; import _ "github.com/cloudwego/hertz/pkg/app"`, "no package behind it sees a Hertz type"},
		{"a dependency without a home", "gateway/doc.go", doc + `package p; import _ "example.com/left/pad"`, "has no home"},
		{"a test library in the product", "gateway/doc.go", doc + `package p; import _ "go.uber.org/goleak"`, "tests only"},
		{"testing in the product", "gateway/doc.go", doc + `package p; import _ "testing"`, "would be linked into the product"},
		{"testing in a conformance suite", "worker/workertest/doc.go", doc + `package p; import _ "testing"`, ""},
		{"tests import anything", "shm/x_test.go", `package p; import _ "example.com/left/pad"`, ""},
		{"a test that never runs", "shm/x_test.go", "//go:build linux && !race\n\npackage p\nfunc TestSpeed() {}\nfunc BenchmarkSpeed() {}", "would never run it"},
		{"an allocation test", "shm/x_test.go", "//go:build !race\n\npackage p\nfunc TestPushDoesNotAllocate() {}", ""},
		{"a folder without a rule", "misc/doc.go", doc + `package p`, "has no rule"},
		{"no essay", "shm/ring.go", `package p`, "expected a doc.go"},
		{"an essay that is too short", "shm/doc.go", "// Package p is p.\npackage p", "expected a doc.go"},
		{"a program without a comment", "gateway/cmd/xebec/main.go", `package main`, "has no comment"},
		{"a vague name", "gateway/internal/util/doc.go", doc + `package util`, "attracts code that belongs elsewhere"},
		{"a file that is too long", "shm/doc.go", long, "lines: expected at most"},
		{"a long generated file", "shm/doc.go", "// Code generated by hand. DO NOT EDIT.\n\n" + long, ""},
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
				t.Errorf("got %q, want one problem that contains %q", problems, c.want)
			}
		})
	}
}
