package xebec

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// forOthers are the packages that modules of other people import.
var forOthers = []string{"api/client", "worker/bindings/go"}

// A module of a model's author builds the README's model with what a module proxy has, without a replace directive. The proxy
// is a directory with this tree; dependencies come from the module cache, which is a proxy, too.
func TestAFreshModuleBuildsTheBinding(t *testing.T) {
	readme, err := os.ReadFile("worker/bindings/go/README.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindSubmatch(readme)
	if example == nil {
		t.Fatal("worker/bindings/go/README.md has no program")
	}
	out, err := exec.Command(".ci/goproxy.sh", filepath.Join(t.TempDir(), "proxy"), "v0.1.7").Output()
	if err != nil {
		t.Fatalf("goproxy.sh: %v", err)
	}
	proxy := strings.TrimSpace(string(out))
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/model\n\ngo 1.26\n",
		"main.go": string(example[1]) + "\nfunc classify(pixels []float32) int64 { return int64(len(pixels)) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := []string{"build"}
	for _, pkg := range forOthers {
		build = append(build, module+"/"+pkg)
	}
	for _, words := range [][]string{{"get", module + "@v0.1.7"}, {"build", "-o", "model", "."}, build} {
		cmd := exec.Command("go", words...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY="+proxy+",file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"), "GOSUMDB=off", "GONOPROXY=none",
			"GOPRIVATE=", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+filepath.Join(dir, "cache"), "GOWORK=off", "GOTOOLCHAIN=local")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, out)
		}
	}
	written, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || strings.Contains(string(written), "replace") || !strings.Contains(string(written), module+" v0.1.7") {
		t.Errorf("go.mod, %v:\n%s", err, written)
	}
	run := exec.Command("./model")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), "XEBEC_SOCKET") {
		t.Errorf("the model without a gateway: %v\n%s", err, out)
	}
}
