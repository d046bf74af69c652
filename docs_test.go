package xebec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// These tests check the documentation against the code: the examples must be accepted, and the names in the text must exist.
// Sessions with a running gateway are run elsewhere (deploy/demo/tests, gateway/cmd/xebec/apptest).

const (
	readmePage       = "README.md"
	architecturePage = "ARCHITECTURE.md"
	resultsPage      = "bench/RESULTS.md"
	modelsPage       = "worker/MODELS.md"
	guideFolder      = "deploy/guide"
)

// guides are the pages whose examples are checked.
var guides = func() []string {
	all := []string{readmePage, architecturePage, "CONTRIBUTING.md", "CHANGELOG.md", modelsPage, resultsPage, "bench/METHOD.md"}
	for _, pattern := range []string{guideFolder + "/*.md", guideFolder + "/*/*.md", "*/DECISIONS.md", "*/*/DECISIONS.md", "*/*/*/DECISIONS.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			panic(err)
		}
		for _, name := range found {
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all
}()

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

// cut separates the fenced blocks of a page from its prose. Lines of blocks are empty in the prose, which keeps line numbers.
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

// TestDocsManifests: every YAML block is a manifest that the gateway accepts, with policies that exist.
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

// buildXebec compiles the program. It reads the sources so that the test cache knows what the result depends on.
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

// goBuild compiles with the flags of .ci/build.sh, so that most of the work is in the build cache.
func goBuild(output, source string) ([]byte, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-o", output, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd.CombinedOutput()
}

// shell runs one line with no gateway to reach, and returns the status of its last command.
func shell(t *testing.T, bin, line string) (status int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a gateway started by mistake would run forever
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "XEBEC_ADMIN=127.0.0.1:1", "XEBEC_SERVER=127.0.0.1:1",
		"XEBEC_DATA_DIR=none")
	cmd.WaitDelay = time.Second // a program that the line left behind may hold the pipe
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

// TestDocsCommands: the program understands every command line. There is no gateway to call and no file to read, so the
// commands fail, but not with status 2, which means a wrong command line.
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
				if strings.HasPrefix(line, "xebec serve") { // it must not start: a missing manifest ends it
					if strings.Contains(line, "&") {
						t.Errorf("%s: %s: a gateway in the background would outlive the test", b.at(), line)
						continue
					}
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
					run(fmt.Sprintf("%s:%d", page, i+1), code[1]+" --help") // checks command and flags but not arguments
				}
			}
		}
	}
}

// TestDocsMakeTargets: every make target that a page names exists.
func TestDocsMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):(?:[^=]|$)`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	named := regexp.MustCompile("(?m)(?:^|`|\\$ )make ([a-z-]+)")
	for _, page := range guides {
		for _, m := range named.FindAllStringSubmatch(read(t, page), -1) {
			if !targets[m[1]] {
				t.Errorf("%s: make %s: no such target in the Makefile", page, m[1])
			}
		}
	}
}

// pages returns all pages of this folder and below, without those of test data and of results.
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
	// A path in prose begins with one of our folders. Folders that only benchmarks make may be missing.
	ourPath = regexp.MustCompile(`^(api|bench|containers|deploy|gateway|scheduler|shm|worker|\.ci)(/[\w.-]+)+/?$`)
	made    = []string{"bench/results"}
)

// TestDocsLinks: relative links lead to files and headings that exist, and paths in the guides exist.
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
		return "the link leads to a file that does not exist: " + target
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
	return "the link leads to a heading that does not exist: " + target
}

// TestDocsMetrics: every metric that a page names is in the generated reference.
func TestDocsMetrics(t *testing.T) {
	there := map[string]bool{"xebec_client": true, "xebec_grpc": true} // packages of Python
	for _, m := range regexp.MustCompile("(?m)^\\| `(xebec_[a-z_]+)` \\|").FindAllStringSubmatch(read(t, guideFolder+"/reference/metrics.md"), -1) {
		there[m[1]] = true
	}
	if len(there) == 2 {
		t.Fatalf("%s/reference/metrics.md: no metric found", guideFolder)
	}
	name := regexp.MustCompile(`\bxebec_[a-z_]+`)
	formerly := regexp.MustCompile("(?m)^\\| `xebec_[a-z_]+`") // the first column of the table of renames
	for _, page := range guides {
		text, renamed, _ := strings.Cut(read(t, page), "\n## Renamed metrics\n")
		for _, m := range name.FindAllString(text+formerly.ReplaceAllString(renamed, ""), -1) {
			plain := m
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				plain = strings.TrimSuffix(plain, suffix)
			}
			if !there[m] && !there[plain] {
				t.Errorf("%s: metric %s is not in the reference", page, m)
			}
		}
	}
}

// TestDocsIndex: the guide's first page links to all others.
func TestDocsIndex(t *testing.T) {
	index := read(t, guideFolder+"/README.md")
	for _, page := range guides {
		name, inside := strings.CutPrefix(page, guideFolder+"/")
		if inside && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("%s/README.md has no link to %s", guideFolder, name)
		}
	}
}

// TestDocsMap: the packages in the map exist, and the map has at least one package of each top-level folder.
func TestDocsMap(t *testing.T) {
	_, table, _ := strings.Cut(read(t, architecturePage), "\n## The map\n")
	table, _, _ = strings.Cut(table, "\n## ")
	tops := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| ").FindAllStringSubmatch(table, -1) {
		if info, err := os.Stat(m[1]); err != nil || !info.IsDir() {
			t.Errorf("%s: the map lists %s, which does not exist", architecturePage, m[1])
		}
		top, _, _ := strings.Cut(m[1], "/")
		tops[top] = true
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains([]string{"build", "bin", "shared"}, e.Name()) && !tops[e.Name()] {
			t.Errorf("%s: the map lists no package of %s", architecturePage, e.Name())
		}
	}
}

// TestDocsDecisions: each section of a page of decisions has a context, a decision and a consequence.
func TestDocsDecisions(t *testing.T) {
	found := 0
	for _, page := range guides {
		if filepath.Base(page) != "DECISIONS.md" {
			continue
		}
		sections := strings.Split(read(t, page), "\n## ")
		for _, section := range sections[1:] {
			found++
			title, text, _ := strings.Cut(section, "\n")
			at := 0
			for _, part := range []string{"\n**Context.** ", "\n**Decision.** ", "\n**Consequence.**"} {
				i := strings.Index(text[at:], part)
				if i < 0 {
					t.Errorf("%s: %s: expected a paragraph that begins with %s, in the order context, decision, consequence", page, title, strings.TrimSpace(part))
					break
				}
				at += i
			}
		}
	}
	if found == 0 {
		t.Error("no decision found")
	}
}

// TestDocsModel: the model and the function on the front page are those of the demo, and Python compiles every program in the
// guides.
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
			if n := strings.Count(b.text, "\n"); n > 10 && b.page == readmePage {
				t.Errorf("%s has %d lines: the page promises at most ten", b.at(), n)
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

// TestDocsGoPrograms: the Go programs in the guides compile. A part of one is marked <!-- from: FILE --> and stands in that file of the
// repository, as it is, where it compiles and is tested.
func TestDocsGoPrograms(t *testing.T) {
	for i, b := range blocksOf(t, "go") {
		if source, ok := strings.CutPrefix(b.before, "<!-- from: "); ok {
			if source = strings.TrimSuffix(source, " -->"); !strings.Contains(read(t, source), b.text) {
				t.Errorf("%s differs from %s", b.at(), source)
			}
			continue
		}
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

// TestDocsChecksFail: the helpers of these tests detect what they should.
func TestDocsChecksFail(t *testing.T) {
	blocks, prose := cut("p.md", "a\n```yaml\nkind: Model\n```\nb")
	if len(blocks) != 1 || blocks[0].text != "kind: Model\n" || blocks[0].line != 2 || blocks[0].before != "a" || strings.Join(prose, "|") != "a||||b" {
		t.Errorf("blocks %+v, prose %q", blocks, prose)
	}
	if judgeLink(t, readmePage, "no-such-file.md") == "" || judgeLink(t, readmePage, "#no-such-heading") == "" ||
		judgeLink(t, guideFolder+"/README.md", "../../ARCHITECTURE.md#the-map") != "" {
		t.Error("judgeLink accepts a broken link or rejects a good one")
	}
}
