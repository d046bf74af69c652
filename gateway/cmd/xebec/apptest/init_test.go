package apptest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What each template makes runs at once, and passes its test. A deployed stream, whose first output takes as long as the default objective,
// has one of its own.
func TestInit(t *testing.T) {
	t.Parallel()
	dir, g := newDir(t), serve(t, "--python", python(t))
	for from, input := range map[string][2]string{
		"python":  {"[1, 2, 3, 6]", "3\n"},
		"sklearn": {"[5.1, 3.5, 1.4, 0.2]", "\"setosa\"\n"},
		"text":    {`"a great day"`, "0.6666666666666666\n"},
		"stream":  {`"one word"`, "[\"one\",\"word\"]\n"},
	} {
		t.Run(from, func(t *testing.T) {
			name := "my-" + from
			xebecAlone(t, dir, "init", "models/"+name, "--from", from).wants(t, "init", 0, "  xebec try models/"+name, "")
			path := filepath.Join(dir, "models", name)
			if from == "sklearn" {
				runPython(t, path, "train.py")
			}
			xebecAlone(t, dir, "try", path, "--python", python(t), "--input", input[0]).wants(t, "try", 0, input[1], "")
			runPython(t, path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
			if from == "stream" {
				g.xebec("deploy", path).wants(t, "deploy", 0, "function "+name+" created", "")
				g.xebec("invoke", name, "--input", input[0]).wants(t, "invoke", 0, "one", "")
			}
		})
	}
	xebecAlone(t, dir, "init", "models/my-text").wants(t, "init over a directory", 1, "", "models/my-text exists")
	xebecAlone(t, dir, "init", "x", "--from", "sklaern").wants(t, "init from an unknown template", 2, "", "did you mean sklearn?")
	xebecAlone(t, dir, "init", "My_Model").wants(t, "init of a bad name", 2, "", "My_Model")
}

// runPython runs a Python program that has to succeed.
func runPython(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(bounded(t), python(t), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("python %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
