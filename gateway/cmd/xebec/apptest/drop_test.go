package apptest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// trainText saves a classifier of texts by joblib: texts with its first word are its first class.
const trainText = `import sys, joblib
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
good, bad, file = sys.argv[1:]
joblib.dump(make_pipeline(CountVectorizer(), LogisticRegression()).fit(["sun day", "rain night"] * 4, [good, bad] * 4), file)
`

// A pickled estimator is refused until its caller allows it, deployed with the inputs and outputs that it has, and gets another version
// when it changes. A file that cannot be loaded says why, and leaves nothing behind.
func TestDropFile(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	interpreter := python(t)
	train := func(good, bad string) {
		t.Helper()
		if out, err := exec.CommandContext(bounded(t), interpreter, "-c", trainText, good, bad, filepath.Join(dir, "Weather.2.joblib")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	train("walk", "read")
	g := serveIn(t, dir, "--python", interpreter)
	deploy := func(args ...string) result {
		t.Helper()
		return g.xebecIn(dir, "", append([]string{"deploy", "--timeout", patience.String()}, args...)...)
	}

	deploy("Weather.2.joblib").wants(t, "deploy a pickle", 1, "", "give --allow-pickle")
	deploy("Weather.2.joblib", "--allow-pickle", "--dry-run").wants(t, "try a pickle", 0, "model weather-2@1 created (dry run)\n", "")
	if _, err := os.Stat(filepath.Join(dir, "xebec-models")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dry run leaves a directory: %v", err)
	}
	r := deploy("Weather.2.joblib", "--allow-pickle")
	r.wants(t, "deploy a pickle that is allowed", 0, "model weather-2@1 created\nfunction weather-2 created", "warning: Weather.2.joblib can run any code")
	for _, line := range []string{"input input: string[]", "output output: string[]", "its classes are read, walk", "made xebec-models/weather-2/1"} {
		if !strings.Contains(r.out, line) {
			t.Errorf("deploy does not say %q:\n%s", line, r.out)
		}
	}
	g.xebec("invoke", "weather-2", "--input", `"a sun"`, "--slo", "60s").wants(t, "invoke", 0, "\"walk\"\n", "")

	deploy("Weather.2.joblib", "--allow-pickle").wants(t, "deploy it again", 0, "model weather-2@1 unchanged\n", "")
	train("swim", "sleep")
	deploy("Weather.2.joblib", "--allow-pickle", "--wait=false").wants(t, "deploy it trained again", 0, "model weather-2@2 created\n", "")

	deploy("Weather.2.joblib", "--allow-pickle", "--dry-run", "--name", "other").wants(t, "try another name", 0, "model other@1 created (dry run)\n", "")
	if err := os.Rename(filepath.Join(dir, "Weather.2.joblib"), filepath.Join(dir, "Weather.2.pkl")); err != nil {
		t.Fatal(err)
	}
	deploy("Weather.2.pkl", "--allow-pickle").wants(t, "deploy another file of the same stem", 1, "",
		"weather-2@2 is Weather.2.joblib: give it a name of its own (--name weather-2-pkl), or --name weather-2 if it is to take the place")
	deploy("Weather.2.pkl", "--allow-pickle", "--name", "weather-2", "--dry-run").wants(t, "try to replace it", 0,
		"weather-2@2 is Weather.2.joblib; Weather.2.pkl is its next version\n", "")
	if left, err := os.ReadDir(filepath.Join(dir, "xebec-models", "weather-2")); err != nil || len(left) != 2 {
		t.Errorf("its home has %v, %v: expected two versions", left, err)
	}

	writeFile(t, dir, "broken.pkl", "\x80\x04cos\nnothing_of_this_name\n.")
	deploy("broken.pkl", "--allow-pickle").wants(t, "deploy a broken pickle", 1, "", "broken.pkl cannot be served: exited with code 1")
	if left, err := os.ReadDir(filepath.Join(dir, "xebec-models")); err != nil || len(left) != 1 {
		t.Errorf("xebec-models has %v, %v: expected one model", left, err)
	}
	writeFile(t, dir, "notes.txt", "not a model\n")
	deploy("notes.txt").wants(t, "deploy a text", 1, "", "expected an ONNX graph")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	deploy("empty").wants(t, "deploy an empty directory", 1, "", "it has no file xebec.yaml")
	deploy("Weather.2.pkl", "--allow-pickle", "--name", "No").wants(t, "a bad name", 2, "", "--name")
}
