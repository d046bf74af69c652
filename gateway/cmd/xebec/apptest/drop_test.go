package apptest

import (
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
	deploy("Weather.2.joblib", "--allow-pickle", "--name", "No").wants(t, "a bad name", 2, "", "--name")
}
