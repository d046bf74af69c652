package apptest

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// meanOf is a model of a directory: the mean of three numbers, and what else is done with a batch.
func meanOf(t *testing.T, dir, code string) {
	t.Helper()
	writeFile(t, dir, "model.py", `import numpy
import xebec

print("loading")


def predict(batch):
    `+code+`


xebec.serve(predict)
`)
}

const meanManifest = `kind: Model
name: mean
inputs:  [{name: input, dtype: float32, shape: [3]}]
outputs: [{name: output, dtype: float32, shape: []}]
run: {command: [python, model.py]}
`

// xebecAlone runs a command that needs no gateway.
func xebecAlone(t *testing.T, dir string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(bounded(t), programs.xebec, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(cmd.Environ(), "TMPDIR="+dir)
	_ = cmd.Run() // ProcessState says how it ended
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// A model directory is tried without a gateway: outputs on stdout, prints and tracebacks on stderr, and a status.
func TestTry(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "xebec.yaml", meanManifest)
	meanOf(t, dir, "print('asked for', len(batch)); assert batch.max() < 100, 'too large'; return batch.mean(axis=1)")
	try := func(args ...string) result {
		return xebecAlone(t, dir, append([]string{"try", ".", "--python", python(t)}, args...)...)
	}
	try("--input", "[1, 2, 6]").wants(t, "try", 0, "3\n", "asked for 1")
	try().wants(t, "try without an input", 0, "0\n", "loading")
	try("--batch", "--input", "[[1, 2, 6], [1000, 0, 0]]").wants(t, "try a bad query", 1, "3\nnull\n", "AssertionError: too large")
	try("--input", "[1]").wants(t, "try an input that does not fit", 1, "", "expected 3 numbers")
	meanOf(t, dir, "return batch")
	try().wants(t, "try a model whose outputs do not fit", 1, "", "xebec.BadOutput: ")
	meanOf(t, dir, "return (")
	failed := try()
	failed.wants(t, "try a model with a syntax error", 1, "", "SyntaxError")
	if n := strings.Count(failed.err, "SyntaxError"); n != 1 {
		t.Errorf("a model that cannot be imported is started %d times:\n%s", n, failed.err)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("%v have outlived the command", left)
	}
}

// developing is a running `xebec dev`.
type developing struct {
	t      *testing.T
	stdin  io.Writer
	mu     sync.Mutex
	output bytes.Buffer
	read   int
}

func (d *developing) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.output.Write(p)
}

// says waits until the command has written what matches, after what was waited for before, and returns the groups.
func (d *developing) says(pattern string) (found []string) {
	d.t.Helper()
	re := regexp.MustCompile(pattern)
	if err := poll(d.t.Context(), func(context.Context) (bool, string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		rest := d.output.Bytes()[d.read:]
		at := re.FindSubmatchIndex(rest)
		if at == nil {
			return false, string(rest)
		}
		for i := 0; i < len(at); i += 2 {
			found = append(found, string(rest[at[i]:at[i+1]]))
		}
		d.read += at[1]
		return true, ""
	}); err != nil {
		d.t.Fatalf("waited for %q: %v", pattern, err)
	}
	return found
}

// dev starts `xebec dev` in a directory, and ends it with the test.
func dev(t *testing.T, dir string, args ...string) *developing {
	t.Helper()
	d := &developing{t: t}
	cmd := exec.Command(programs.xebec, append([]string{"dev", "."}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, d, d
	cmd.Env = append(cmd.Environ(), "TMPDIR="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.stdin = stdin
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("xebec dev: %v\n%s", err, d.output.String())
		}
		if left := processesOf(dir); len(left) > 0 {
			t.Errorf("%v have outlived the command", left)
		}
	})
	return d
}

// requested sends a request, and returns a function that waits for the answer.
func requested(t *testing.T, url, body string) func() string {
	t.Helper()
	answer := make(chan string, 1)
	req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		answer <- fmt.Sprint(res.StatusCode, " ", string(text), err)
	}()
	return func() string { return <-answer }
}

// A model is started again when its file is saved; its author sees its prints and tracebacks, and stops it with breakpoint(). A request that
// comes while it cannot start is answered when that is repaired.
func TestDev(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir := newDir(t)
	writeFile(t, dir, "xebec.yaml", meanManifest+"preload: [numpy]\n")
	meanOf(t, dir, "print('asked'); return batch.mean(axis=1)")
	d := dev(t, dir, "--python", python(t))
	request := d.says(`curl (http://\S+/mean/predict) -d '(.*)'`)
	url, body := request[1], request[2]
	if got := requested(t, url, body)(); !strings.Contains(got, `200 {`) || !strings.Contains(got, `"output":0`) {
		t.Errorf("the request to paste is answered by %s", got)
	}
	d.says("asked\n")

	meanOf(t, dir, "breakpoint()\n    import signal; print(signal.getsignal(signal.SIGINT).__qualname__)\n    return batch.mean(axis=1) + 1")
	d.says(`model.py has changed\n(.*\n)*.*mean is ready after `)
	answer := requested(t, url, `{"input": [1, 2, 6]}`)
	d.says(`\(Pdb\) `)
	fmt.Fprintln(d.stdin, "p batch.shape")
	d.says(`\(1, 3\)\n\(Pdb\) `)
	fmt.Fprintln(d.stdin, "c")
	d.says(`Worker._on_signal\n`) // Ctrl-C is not the debugger's afterwards
	if got := answer(); !strings.Contains(got, `"output":4`) {
		t.Errorf("after the breakpoint: %s", got)
	}

	meanOf(t, dir, "raise KeyError('nothing')")
	d.says(`mean is ready after `)
	if got := requested(t, url, body)(); !strings.HasPrefix(got, "502 ") {
		t.Errorf("a model that raises: %s", got)
	}
	d.says(`File ".*/model.py", line 8, in predict\n.*\nKeyError: 'nothing'\n`)

	meanOf(t, dir, "return (")
	d.says(`SyntaxError: .*\n.*has ended \(exited with code 1\)`)
	answer = requested(t, url, `{"input": [1, 2, 6]}`)
	meanOf(t, dir, "return batch.mean(axis=1)")
	if got := answer(); !strings.Contains(got, `"output":3`) {
		t.Errorf("a request from before the repair: %s", got)
	}
	writeFile(t, dir, "xebec.yaml", "inputs: nothing\n")
	d.says(`xebec.yaml:1:9: inputs: .*expected`)
	writeFile(t, dir, "xebec.yaml", strings.Replace(meanManifest, "[3]", "[2]", 1))
	d.says(`curl \S+ -d '{"input":\[0,0\]}'`)
	if got := requested(t, url, `{"input": [1, 5]}`)(); !strings.Contains(got, `"output":3`) {
		t.Errorf("with another signature: %s", got)
	}
}

// A program in another language is started again, too.
func TestDevOfAProgram(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir := newDir(t)
	writeFile(t, dir, "xebec.yaml", strings.TrimPrefix(testModel("markers", nil), "\n---\n"))
	d := dev(t, dir)
	url := d.says(`curl (http://\S+/markers/predict) -d '{"input":"hello"}'`)[1]
	if got := requested(t, url, `{"input": "hello"}`)(); !strings.HasPrefix(got, "200 ") {
		t.Errorf("it answers %s", got)
	}
	if got := requested(t, url, `{"input": "panic"}`)(); !strings.HasPrefix(got, "502 ") {
		t.Errorf("it answers %s", got)
	}
	d.says("the marker panic")
	if got := requested(t, url, `{"input": "die"}`)(); !strings.Contains(got, "replica_lost") {
		t.Errorf("it answers %s", got)
	}
	d.says(`has ended \(.*\): it is started again when a file changes`)
}

// wheelOf makes a wheel of a package with one module.
func wheelOf(t *testing.T, dir, name, source string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, name+"-1.0-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	info := name + "-1.0.dist-info/"
	for member, text := range map[string]string{
		name + ".py": source, info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
		info + "WHEEL":  "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD": name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n",
	} {
		m, err := w.Create(member)
		if err == nil {
			_, err = io.WriteString(m, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// try and dev run a model in an environment with what its directory asks for, which is built once for both. One that cannot be built says why; dev
// tries again when the requirements are mended.
func TestTryAndDevBuildTheEnvironment(t *testing.T) {
	dir := newDir(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("UV_NO_INDEX", "1")
	model := filepath.Join(dir, "model")
	writeFile(t, model, "xebec.yaml", "kind: Model\nname: greets\ninputs:  [{name: input, dtype: string, shape: []}]\noutputs: [{name: output, dtype: string, shape: []}]\nrun: {command: [python, model.py]}\n")
	writeFile(t, model, "model.py", "import greeting, xebec\nxebec.serve(lambda batch: [greeting.word + ' ' + text for text in batch])\n")
	writeFile(t, model, "requirements.txt", "./greeting-1.0-py3-none-any.whl\n")
	wheelOf(t, model, "greeting", "word = 'hello'\n")
	try := func(args ...string) result {
		return xebecAlone(t, model, append([]string{"try", ".", "--python", python(t), "--input", `"Ada"`}, args...)...)
	}
	try().wants(t, "try a model with requirements", 0, `"hello Ada"`, "xebec: environment: built in ")
	again := try()
	again.wants(t, "try it again", 0, `"hello Ada"`, "")
	if strings.Contains(again.err, "environment: ") {
		t.Errorf("the environment is built again:\n%s", again.err)
	}
	try("--no-environment").wants(t, "try it as it is", 1, "", "No module named 'greeting'")

	writeFile(t, model, "requirements.txt", "nothing-of-the-kind\n")
	failed := try()
	failed.wants(t, "try a model whose packages are not there", 1, "", "the environment cannot be built: install the requirements: ")
	if n := strings.Count(failed.err, "No matching distribution"); n > 1 {
		t.Errorf("the installer's error is printed %d times:\n%s", n, failed.err)
	}
	d := dev(t, model, "--python", python(t))
	d.says("the environment cannot be built: install the requirements: (.*\n)*.*the model is started when a file changes")
	writeFile(t, model, "requirements.txt", "./greeting-1.0-py3-none-any.whl\n")
	d.says(`greets serves at `)
}
