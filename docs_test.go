package xebec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// The pages for people are checked against the code: what they show must be accepted, and what they name must exist. Sessions
// with a running gateway are run elsewhere (deploy/demo/tests, gateway/cmd/xebec/apptest).

const (
	readmePage       = "README.md"
	architecturePage = "ARCHITECTURE.md"
	operatingPage    = "deploy/OPERATING.md"
	modelsPage       = "worker/MODELS.md"
)

var guides = []string{readmePage, architecturePage, "CHANGELOG.md", operatingPage, modelsPage}

// block is one fenced block of a page.
type block struct {
	page, kind, text string
	line             int
	before           string // the line above the fence
}

func (b block) at() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cut separates the fenced blocks of a page from its prose. Lines of blocks are empty in the prose, so that numbers stay.
func cut(page, text string) (blocks []block, prose []string) {
	var open *block
	before := ""
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{page: page, kind: strings.TrimSpace(line[3:]), line: i + 1, before: before}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		default:
			before = line
			prose = append(prose, line)
			continue
		}
		prose = append(prose, "")
	}
	return blocks, prose
}

func blocksOf(t *testing.T, kinds ...string) []block {
	t.Helper()
	var all []block
	for _, page := range guides {
		blocks, _ := cut(page, read(t, page))
		for _, b := range blocks {
			if slices.Contains(kinds, b.kind) {
				all = append(all, b)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no block marked %v in %v", kinds, guides)
	}
	return all
}

// TestDocsManifests: every YAML block is a manifest that the gateway would take, with policies that it has.
func TestDocsManifests(t *testing.T) {
	for _, b := range blocksOf(t, "yaml") {
		set, err := manifest.Decode(manifest.ModelFile, []byte(b.text))
		if err != nil {
			t.Errorf("%s: %v", b.at(), err)
			continue
		}
		for i := range set.Functions {
			f := &set.Functions[i]
			if _, err := selection.New(f.Policy.Name, f.Policy.Params, f.Models); err != nil {
				t.Errorf("%s: function %s: %v", b.at(), f.Name, err)
			}
		}
		for i := range set.Traffic {
			x := set.Traffic[i].Rollout
			if x == nil {
				continue
			}
			arms := []string{set.Traffic[i].Model + "@old", set.Traffic[i].Model + "@" + x.Version}
			if _, err := selection.New(x.Policy.Name, x.Policy.Params, arms); err != nil {
				t.Errorf("%s: roll-out of %s: %v", b.at(), set.Traffic[i].Model, err)
			}
		}
	}
}

var parameterRow = regexp.MustCompile("(?m)^\\| `[a-z0-9-]+` \\| `[a-z_]+` \\| .*$")

// TestDocsPolicies: the operating guide's table of parameters is that of the policies, word for word.
func TestDocsPolicies(t *testing.T) {
	_, page, ok := strings.Cut(read(t, operatingPage), "\n### Parameters of policies\n")
	if !ok {
		t.Fatalf("%s: expected a section \"Parameters of policies\"", operatingPage)
	}
	page, _, _ = strings.Cut(page, "\n### ")
	documented := parameterRow.FindAllString(page, -1)
	var want []string
	for _, name := range selection.Names() {
		if !strings.Contains(read(t, operatingPage), "| `"+name+"` |") {
			t.Errorf("%s: the policy %s has no row", operatingPage, name)
		}
		for _, p := range selection.Parameters(name) {
			want = append(want, fmt.Sprintf("| `%s` | `%s` | %s | %s–%s | %s |", name, p.Name, plain(p.Default), plain(p.Low), plain(p.High), p.Doc))
		}
	}
	for _, row := range want {
		if !slices.Contains(documented, row) {
			t.Errorf("%s: expected the row %s", operatingPage, row)
		}
	}
	for _, row := range documented {
		if !slices.Contains(want, row) {
			t.Errorf("%s: there is no such parameter: %s", operatingPage, row)
		}
	}
}

// plain is a number as people write it.
func plain(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return "–"
}

var modelField = regexp.MustCompile("(?m)^\\| `([a-z0-9_.`, \\[\\]]+)` \\|")

// TestDocsFields: the reference in the author's guide has every field that a model or a function can have, and no other; and so has
// that in the operating guide of traffic rules.
func TestDocsFields(t *testing.T) {
	set := everyField()
	models, _, ok := strings.Cut(read(t, modelsPage), "\n## Types and shapes")
	if !ok {
		t.Fatalf("%s: expected a section \"Types and shapes\" after the reference of the fields", modelsPage)
	}
	has := fieldsOf(t, &manifest.Set{Models: set.Models, Functions: set.Functions}, "env", "shadow")
	compareFields(t, modelsPage, models, has)

	_, rules, ok := strings.Cut(read(t, operatingPage), "\n### Traffic rules\n")
	if !ok {
		t.Fatalf("%s: expected a section \"Traffic rules\" with the reference of their fields", operatingPage)
	}
	rules, _, _ = strings.Cut(rules, "\n### ")
	compareFields(t, operatingPage, rules, fieldsOf(t, &manifest.Set{Traffic: set.Traffic}, "labels"))

	m, f, v := &set.Models[0], &set.Functions[0], set.Models[0].Validation
	for _, row := range []string{
		fmt.Sprintf("| `cache` | `%s` |", m.Cache), fmt.Sprintf("| `policy` | `%s` |", f.Policy.Name),
		fmt.Sprintf("| `slo` | `%dms` |", f.SLO.Milliseconds()), fmt.Sprintf("| `weight` | %g |", f.Weight),
		fmt.Sprintf("| `validate.expect` | `%s` |", v.Expect), fmt.Sprintf("| `warmup.repeat` | %d |", m.Warmup.Repeat),
		fmt.Sprintf("| `replicas.idle` | `%gm` |", m.Replicas.Idle.Minutes()), fmt.Sprintf("| `replicas.window` | `%gm` |", m.Replicas.Window.Minutes()),
		fmt.Sprintf("| `replicas.delay` | `%gs` |", m.Replicas.Delay.Seconds()), fmt.Sprintf("| `replicas.utilization` | %g |", m.Replicas.Utilization),
		fmt.Sprintf("| `replicas.up` | %g |", m.Replicas.Up), fmt.Sprintf("| `replicas.down` | %g |", m.Replicas.Down),
	} {
		if !strings.Contains(models, "\n"+row) {
			t.Errorf("%s: expected a row that begins with %s", modelsPage, row)
		}
	}
	r := set.Traffic[1].Rollout
	for _, row := range []string{
		fmt.Sprintf("| `transition` | `%s` |", set.Traffic[0].Transition), fmt.Sprintf("| `rollout.policy` | `%s` |", r.Policy.Name),
		fmt.Sprintf("| `rollout.guard.min_feedback` | %d |", r.Guard.MinFeedback),
		fmt.Sprintf("| `rollout.guard.max_error_increase` | %g |", r.Guard.MaxErrorIncrease),
		fmt.Sprintf("| `rollout.guard.max_p99_increase` | %g |", r.Guard.MaxP99Increase),
	} {
		if !strings.Contains(rules, "\n"+row) {
			t.Errorf("%s: expected a row that begins with %s", operatingPage, row)
		}
	}
}

// everyField is a set in which every field has a value, the defaults where there are any. What cannot stand beside something else has an
// object of its own.
func everyField() *manifest.Set {
	model := api.ModelSpec{
		Name: "m", Inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}}, Outputs: []api.TensorSpec{{Name: "y", DType: api.Bytes}},
		Run: api.RunSpec{Command: []string{"python"}, Env: map[string]string{"A": "b"}}, Python: ".venv", Cost: 1, Device: "gpu0", Dir: "/models/m",
		Batching: api.BatchingSpec{Policy: api.BatchFixed, Max: 8, Hold: time.Millisecond, Objective: time.Second, Pad: true},
		Warmup:   &api.WarmupSpec{Queries: "w.jsonl"}, Validation: &api.ValidateSpec{Queries: "v.jsonl", MinAccuracy: 0.9, Tolerance: 0.001},
		Preload: []string{"numpy"}, Replicas: api.ReplicaBounds{Min: 1, Max: 3, Initial: 2},
		Resources: api.ResourceSpec{CPU: 0.5, MemoryBytes: 1 << 30}, Limits: api.LimitSpec{CPU: 1, MemoryBytes: 2 << 30, PIDs: 64},
		Expect: []api.ExpectSpec{{Rate: 1, From: "08:00", To: "18:00"}},
	}
	other := model
	other.Version = "2"
	other.Run, other.Python, other.Preload = api.RunSpec{Image: "m:2"}, "", nil
	other.Device, other.Resources.GPU = "", 1
	other.Validation = &api.ValidateSpec{Queries: "v.jsonl", Expect: api.ExpectServing, MaxDifference: 0.05}
	function := api.FunctionSpec{
		Name: "f", Models: []string{"m"}, Default: json.RawMessage(`"eA=="`), ColdStart: time.Second, Budget: 1,
		Loss: api.LossSpec{Kind: api.LossAbsolute, Scale: 2, Tolerance: 1}, MinConfidence: 0.5, Shadow: map[string]float64{"n": 0.1},
		Log: &api.LogSpec{Sample: 0.1},
	}
	return &manifest.Set{
		Models: []api.ModelSpec{model.WithDefaults(), other.WithDefaults()}, Functions: []api.FunctionSpec{function.WithDefaults()},
		Traffic: []api.TrafficSpec{
			api.TrafficSpec{
				Model: "m", Versions: api.VersionPolicy{Latest: 2}, Serving: "3", Split: &api.VersionShare{Version: "4", Percent: 10},
				Shadow: &api.VersionShare{Version: "4", Percent: 5}, Labels: map[string]string{"canary": "4"},
				Rollback: &api.RollbackSpec{From: "5", To: "3", Reason: "slow"},
			}.WithDefaults(),
			api.TrafficSpec{Model: "n", Versions: api.VersionPolicy{Specific: []string{"3"}}, Rollout: &api.RolloutSpec{Version: "4"}}.WithDefaults(),
			api.TrafficSpec{Model: "o", Versions: api.VersionPolicy{All: true}}.WithDefaults(),
		},
	}
}

// fieldsOf are the fields that a set has when it is written. Of those that authors name the keys are the author's.
func fieldsOf(t *testing.T, set *manifest.Set, authors ...string) map[string]bool {
	t.Helper()
	text, err := set.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	if err := json.Unmarshal(text, &objects); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, o := range objects {
		delete(o, "kind")
		collectFields(has, "", o, authors)
	}
	return has
}

func compareFields(t *testing.T, page, reference string, has map[string]bool) {
	t.Helper()
	documented := map[string]bool{}
	for _, row := range modelField.FindAllStringSubmatch(reference, -1) {
		for _, name := range strings.Split(strings.ReplaceAll(row[1], "`", ""), ",") {
			documented[strings.TrimSpace(name)] = true
		}
	}
	for name := range has {
		if !documented[name] {
			t.Errorf("%s: the field %q has no row", page, name)
		}
	}
	for name := range documented {
		if !has[name] {
			t.Errorf("%s: there is no field %q", page, name)
		}
	}
}

// collectFields gathers the names of fields: groups by their members, tensors by those of the inputs, which stand for both.
func collectFields(has map[string]bool, path string, o map[string]any, authors []string) {
	for name, v := range o {
		switch v := v.(type) {
		case map[string]any:
			if slices.Contains(authors, name) {
				has[path+name] = true
			} else {
				collectFields(has, path+name+".", v, authors)
			}
		case []any:
			has[path+name] = true
			if first, ok := v[0].(map[string]any); ok && name == "inputs" {
				collectFields(has, name+"[].", first, authors)
			}
		default:
			has[path+name] = true
		}
	}
}

// buildXebec compiles the program. Reading the sources tells the test cache what the result depends on.
func buildXebec(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"api", "gateway"} {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(name, ".go") {
				_, err = os.ReadFile(name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if out, err := goBuild(filepath.Join(dir, "xebec"), "./gateway/cmd/xebec"); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return dir
}

// goBuild compiles as .ci/build.sh does, so that the build cache has most of it.
func goBuild(output, source string) ([]byte, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-o", output, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd.CombinedOutput()
}

// shell runs one line where no gateway is, and returns the status of its last command.
func shell(t *testing.T, bin, line string) (status int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a gateway that was started by mistake would stay
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "XEBEC_ADMIN=127.0.0.1:1", "XEBEC_SERVER=127.0.0.1:1")
	cmd.Stdin = strings.NewReader("0")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("bash: %v", err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

var (
	callsXebec = regexp.MustCompile(`(^|\| )xebec `)
	assigns    = regexp.MustCompile(`^[A-Z_]+=`)
	inlineCode = regexp.MustCompile("`([^`]+)`")
)

// TestDocsCommands: the program understands every command line. There is no gateway to speak to and no file to read, so the
// commands fail; but not with status 2, by which the program says that it did not understand.
func TestDocsCommands(t *testing.T) {
	bin := buildXebec(t)
	run := func(at, line string) {
		if status, out := shell(t, bin, line); status == 2 || status < 0 || status > 125 {
			t.Errorf("%s: %s: status %d: %s", at, line, status, out)
		}
	}
	found, before, page := 0, "", "" // assignments of a page hold in its later blocks, as in one shell
	for _, b := range blocksOf(t, "sh", "console") {
		if b.page != page {
			before, page = "", b.page
		}
		for _, line := range strings.Split(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
			if b.kind == "console" {
				var command bool
				if line, command = strings.CutPrefix(line, "$ "); !command {
					continue
				}
			}
			switch {
			case assigns.MatchString(line):
				before += line + "\n"
			case callsXebec.MatchString(line):
				found++
				if strings.HasPrefix(line, "xebec serve") {
					line += " --config does-not-exist"
				}
				run(b.at(), before+line)
			}
		}
	}
	if found == 0 {
		t.Error("no command line found")
	}
	for _, page := range guides {
		_, prose := cut(page, read(t, page))
		for i, line := range prose {
			for _, code := range inlineCode.FindAllStringSubmatch(line, -1) {
				if strings.HasPrefix(code[1], "xebec ") {
					run(fmt.Sprintf("%s:%d", page, i+1), code[1]+" --help") // judges command and flags, and leaves arguments alone
				}
			}
		}
	}

	_, help := shell(t, bin, "xebec serve --help")
	var flags, documented []string
	ofAll := []string{"help", "server", "token-file", "ca"} // of all commands; all but the first mean nothing to serve
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(help, -1) {
		if !slices.Contains(ofAll, m[1]) {
			flags = append(flags, m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\|").FindAllStringSubmatch(read(t, operatingPage), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(flags)
	slices.Sort(documented)
	if !slices.Equal(flags, documented) {
		t.Errorf("%s documents the flags %v of serve: it has %v", operatingPage, documented, flags)
	}
}

// TestDocsMakeTargets: every target that a page tells to make is there.
func TestDocsMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):(?:[^=]|$)`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	named := regexp.MustCompile("(?m)(?:^|`|\\$ )make ([a-z-]+)")
	for _, page := range append([]string{"CONTRIBUTING.md"}, guides...) {
		for _, m := range named.FindAllStringSubmatch(read(t, page), -1) {
			if !targets[m[1]] {
				t.Errorf("%s: make %s: there is no such target", page, m[1])
			}
		}
	}
}

// pages are all pages for people, of this folder and below.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		leave := []string{"testdata", "build", "bin", "results", "node_modules"}
		if d.IsDir() && name != "." && (slices.Contains(leave, d.Name()) || strings.HasPrefix(d.Name(), ".") || strings.HasSuffix(d.Name(), ".egg-info")) {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, ".md") {
			all = append(all, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	slugDrop = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	// A path in prose: it begins with one of our folders. Where the code is made rather than written, nothing is checked.
	ourPath = regexp.MustCompile(`^(api|bench|containers|deploy|gateway|scheduler|shm|worker|\.ci)(/[\w.-]+)+/?$`)
	made    = []string{"bench/results"}
)

// TestDocsLinks: relative links lead to files and headings that exist, and so do paths in the guides.
func TestDocsLinks(t *testing.T) {
	for _, page := range pages(t) {
		_, prose := cut(page, read(t, page))
		for i, line := range prose {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if problem := judgeLink(t, page, m[1]); problem != "" {
					t.Errorf("%s:%d: %s", page, i+1, problem)
				}
			}
			if !slices.Contains(guides, page) {
				continue
			}
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				if !ourPath.MatchString(m[1]) || slices.Contains(made, m[1]) {
					continue
				}
				if _, err := os.Stat(m[1]); err != nil {
					t.Errorf("%s:%d: %s does not exist", page, i+1, m[1])
				}
			}
		}
	}
}

func judgeLink(t *testing.T, page, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	name, anchor, _ := strings.Cut(target, "#")
	file := page
	if name != "" {
		file = filepath.Join(filepath.Dir(page), name)
	}
	if _, err := os.Stat(file); err != nil {
		return "the link leads nowhere: " + target
	}
	if anchor == "" {
		return ""
	}
	for _, m := range heading.FindAllStringSubmatch(read(t, file), -1) {
		slug := strings.ReplaceAll(slugDrop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == anchor {
			return ""
		}
	}
	return "there is no heading for " + target
}

// TestDocsMetrics: every metric that a page names is scraped, and the operating guide names all of them.
func TestDocsMetrics(t *testing.T) {
	dir := "gateway/internal/obs"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	scraped := map[string]bool{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			for _, m := range regexp.MustCompile(`desc\("([a-z_]+)"`).FindAllStringSubmatch(read(t, dir+"/"+e.Name()), -1) {
				scraped["xebec_"+m[1]] = true
			}
		}
	}
	if len(scraped) == 0 {
		t.Fatalf("no metric found in %s: the test looks for desc(\"name\"", dir)
	}
	name := regexp.MustCompile(`\bxebec_[a-z_]+`)
	for _, page := range guides {
		for _, m := range name.FindAllString(read(t, page), -1) {
			plain := m
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				plain = strings.TrimSuffix(plain, suffix)
			}
			if !scraped[m] && !scraped[plain] {
				t.Errorf("%s: there is no metric %s", page, m)
			}
		}
	}
	page := read(t, operatingPage)
	for m := range scraped {
		if !strings.Contains(page, "`"+m+"`") {
			t.Errorf("%s does not name the metric %s", operatingPage, m)
		}
	}
}

// TestDocsCodes: the table of codes is that of package api, word for word.
func TestDocsCodes(t *testing.T) {
	page := read(t, operatingPage)
	for code := range api.Codes {
		if code == api.OK {
			continue
		}
		reason := code.Reason()
		if reason == "" {
			reason = "–"
		}
		row := fmt.Sprintf("| `%s` | %d | %s | ", code, code.HTTPStatus(), reason)
		if !strings.Contains(page, row) {
			t.Errorf("%s: expected a row that begins with %s", operatingPage, row)
		}
	}
}

// TestDocsModel: the model and the function on the front page are the demo's, and Python compiles every program that the guides
// show.
func TestDocsModel(t *testing.T) {
	dir := t.TempDir()
	var programs []string
	same := map[string]int{}
	for i, b := range blocksOf(t, "python", "yaml") {
		if source, ok := strings.CutPrefix(b.before, "<!-- same as: "); ok {
			same[b.kind]++
			source = strings.TrimSuffix(source, " -->")
			if read(t, source) != b.text {
				t.Errorf("%s differs from %s", b.at(), source)
			}
			if n := strings.Count(b.text, "\n"); n > 10 {
				t.Errorf("%s has %d lines: ten were promised", b.at(), n)
			}
		}
		if b.kind != "python" {
			continue
		}
		name := filepath.Join(dir, fmt.Sprintf("block%d.py", i))
		if err := os.WriteFile(name, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, name)
	}
	if same["python"] == 0 || same["yaml"] == 0 {
		t.Errorf("%s: expected blocks of Python and of YAML under a line <!-- same as: FILE -->", readmePage)
	}
	python := os.Getenv("XEBEC_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, append([]string{"-m", "py_compile"}, programs...)...).CombinedOutput(); err != nil {
		t.Errorf("%s -m py_compile: %v\n%s", python, err, out)
	}
}

// TestDocsGoPrograms: the Go programs that the guides show compile against the binding.
func TestDocsGoPrograms(t *testing.T) {
	for i, b := range blocksOf(t, "go") {
		dir := t.TempDir()
		name := filepath.Join(dir, fmt.Sprintf("block%d.go", i))
		if err := os.WriteFile(name, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := goBuild(filepath.Join(dir, "out"), name); err != nil {
			t.Errorf("%s: %v\n%s", b.at(), err, out)
		}
	}
}

// The tools find what is wrong: a check that cannot fail proves nothing.
func TestDocsChecksFail(t *testing.T) {
	blocks, prose := cut("p.md", "a\n```yaml\nkind: Model\n```\nb")
	if len(blocks) != 1 || blocks[0].text != "kind: Model\n" || blocks[0].line != 2 || blocks[0].before != "a" || strings.Join(prose, "|") != "a||||b" {
		t.Errorf("blocks %+v, prose %q", blocks, prose)
	}
	if judgeLink(t, readmePage, "no-such-file.md") == "" || judgeLink(t, readmePage, "#no-such-heading") == "" || judgeLink(t, operatingPage, "../ARCHITECTURE.md#limits") != "" {
		t.Error("links are not judged")
	}
	for _, c := range []struct {
		file, name string
		want       int64
	}{{"api/spec_model.go", "DefaultQueueMax", 16384}, {"api/spec_model.go", "MaxTimeout", int64(time.Hour)}, {"gateway/query/http.go", "IdleTimeout", int64(3 * time.Minute)}} {
		if got, err := valueIn(c.file, c.name); err != nil || got != c.want {
			t.Errorf("%s in %s: %d, %v", c.name, c.file, got, err)
		}
	}
	if _, err := valueIn("api/id.go", "NoSuchName"); err == nil {
		t.Error("a name that is not there has a value")
	}
	if n, err := quantity("64 KiB"); err != nil || n != 65536 {
		t.Errorf("64 KiB is %d, %v", n, err)
	}
}
