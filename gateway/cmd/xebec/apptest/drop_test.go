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

// trainFrame saves a classifier of frames whose column of text has missing values: the city alone decides, and a missing one is "stray".
const trainFrame = `import sys, joblib, pandas
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier
df = pandas.DataFrame({"city": ["Bern", "Rome", None] * 4, "age": [20.0, 30.0, 40.0] * 4})
estimator = make_pipeline(make_column_transformer((OneHotEncoder(), ["city"])), DecisionTreeClassifier())
joblib.dump(estimator.fit(df, ["alps", "sea", "stray"] * 4), sys.argv[1])
`

// An estimator that was fitted on a frame with missing texts gets an empty text as a missing one, and deploy says so.
func TestDropFrameWithMissingTexts(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	interpreter := python(t)
	if out, err := exec.CommandContext(bounded(t), interpreter, "-c", "import pandas").CombinedOutput(); err != nil {
		t.Skipf("this Python has no pandas: %s", out)
	}
	if out, err := exec.CommandContext(bounded(t), interpreter, "-c", trainFrame, filepath.Join(dir, "place.joblib")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	g := serveIn(t, dir, "--python", interpreter)
	r := g.xebecIn(dir, "", "deploy", "--timeout", patience.String(), "place.joblib", "--allow-pickle")
	r.wants(t, "deploy the pickle", 0, "model place@1 created", "")
	if want := "an empty text in city is a missing value"; !strings.Contains(r.out, want) {
		t.Errorf("deploy does not say %q:\n%s", want, r.out)
	}
	for city, want := range map[string]string{"Bern": "alps", "Rome": "sea", "": "stray"} {
		g.xebec("invoke", "place", "--input", `{"city": "`+city+`", "age": null}`, "--slo", "60s").wants(t, "invoke for "+city, 0, `"`+want+`"`+"\n", "")
	}
}

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
