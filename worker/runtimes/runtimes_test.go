package runtimes

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// field is a field of a message of protocol buffers.
func field(number uint64, contents []byte) []byte {
	b := binary.AppendUvarint(nil, number<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(contents))), contents...)
}

// graph is an ONNX model without nodes.
func graph() []byte {
	return bytes.Join([][]byte{{1 << 3, 10}, field(2, []byte("a test")), field(7, []byte("\x12\x01g")), field(8, []byte("\x10\x15"))}, nil)
}

func archive(t *testing.T, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range members {
		if _, err := w.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Files are recognised by what is in them, whatever they are called; a pickle is said to be one.
func TestFiles(t *testing.T) {
	for _, c := range []struct {
		name     string
		contents []byte
		want     string // the runtime with its flags, or a part of the error
		pickle   bool
	}{
		{"model.onnx", graph(), "onnx", false},
		{"renamed.bin", graph(), "onnx", false},
		{"cut.onnx", graph()[:len(graph())-1], "none of the formats", false},
		{"huge.onnx", binary.AppendUvarint([]byte{1 << 3, 10, 7<<3 | 2}, 1<<63), "none of the formats", false},
		{"model.json", []byte(`{"learner":{"attributes":{}`), "xgboost", false},
		{"model.ubj", []byte("{L\x00\x00\x00\x00\x00\x00\x00\x07learner{L"), "xgboost", false},
		{"other.json", []byte(`{"name": "learn"}`), "none of the formats", false},
		{"model.txt", []byte("tree\nversion=v4\n"), "lightgbm", false},
		{"words.txt", []byte("trees are green\n"), "none of the formats", false},
		{"model.pkl", []byte("\x80\x04\x95\x10"), "sklearn", true},
		{"no-suffix", []byte("\x80\x05\x95\x10"), "sklearn", true},
		{"model.joblib", []byte("\x78\x5e\x75\x55"), "sklearn", true},
		{"old.pickle", []byte("(dp0\n."), "sklearn", true},
		{"old.pt", append(bytes.Clone(torchMagic), "..."...), "torch --form pickle", true},
		{"script.pt", archive(t, "m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"), "torch --form torchscript", false},
		{"tensors.pt", archive(t, "m/data.pkl", "m/data/0"), "torch --form pickle", true},
		{"program.pt2", archive(t, "program/models/model.json", "program/archive_format"), "torch --form exported", false},
		{"earlier.pt2", archive(t, "serialized_exported_program.json"), "torch --form exported", false},
		{"report.docx", archive(t, "word/document.xml"), "none of PyTorch", false},
		{"model.keras", archive(t, "metadata.json"), "export it to ONNX", false},
		{"damaged.pt", []byte("PK\x03\x04 and no more"), "damaged archive", false},
		{"model.h5", []byte("\x89HDF\r\n\x1a\n.."), "export the model to ONNX", false},
		{"model.gguf", []byte("GGUF...."), "llama-cpp-python", false},
		{"model.tflite", []byte("\x1c\x00\x00\x00TFL3"), "export the model to ONNX", false},
		{"model.safetensors", []byte("\x10\x00\x00\x00\x00\x00\x00\x00{\"w\":{}}"), "deploy the directory", false},
		{"empty", nil, "none of the formats", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.name)
			write(t, path, c.contents)
			check(t, path, c.want, c.pickle)
		})
	}
}

func write(t *testing.T, path string, contents []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, path, want string, pickle bool) {
	t.Helper()
	found, err := Recognise(path)
	if err != nil {
		if !strings.Contains(err.Error(), want) || pickle {
			t.Errorf("got %v: expected %q", err, want)
		}
		return
	}
	if got := strings.Join(append([]string{found.Name}, found.Flags...), " "); got != want || (found.Pickle != "") != pickle {
		t.Errorf("it is %q, a pickle because %q: expected %q, %t", got, found.Pickle, want, pickle)
	}
	if len(found.Source()) == 0 {
		t.Errorf("there is no runtime %s", found.Name)
	}
}

func TestDirectories(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string
		want   string
		pickle bool
	}{
		{"mlflow", map[string]string{"MLmodel": "flavors:", "model.xgb": "{L\x00learner{"}, "mlflow", false},
		{"mlflow with a pickle", map[string]string{"MLmodel": "flavors:", "data/model.pkl": ""}, "mlflow", true},
		{"mlflow with a pickle of another name", map[string]string{"MLmodel": "flavors:", "data/python_model": "\x80\x04."}, "mlflow", true},
		{"mlflow with code", map[string]string{"MLmodel": "flavors:", "code/loader.py": ""}, "mlflow", true},
		{"transformers", map[string]string{"config.json": "{}", "model.safetensors": "", "training_args.bin": ""}, "huggingface", false},
		{"weights in a pickle", map[string]string{"config.json": "{}", "pytorch_model.bin": ""}, "huggingface", true},
		{"no weights", map[string]string{"config.json": "{}"}, "no weights", false},
		{"anything", map[string]string{"README": ""}, "none of the directories", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, contents := range c.files {
				write(t, filepath.Join(dir, name), []byte(contents))
			}
			check(t, dir, c.want, c.pickle)
		})
	}
}

// The weights beside an ONNX graph belong to it.
func TestFilesBeside(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "m.onnx"), graph())
	write(t, filepath.Join(dir, "m.onnx.data"), []byte("weights"))
	found, err := Recognise(filepath.Join(dir, "m.onnx"))
	if err != nil || len(found.Beside) != 1 || found.Beside[0] != "m.onnx.data" {
		t.Errorf("got %+v, %v", found, err)
	}
}

func TestTensors(t *testing.T) {
	for text, want := range map[string]string{
		"float32[3,224,224]": "input float32 [3 224 224]",
		"ids=int64[-1]":      "ids int64 [-1]",
		"int64[]":            "input int64 []",
		"str[]":              "input string []",
		"float32":            "expected a type and the shape",
		"float33[1]":         "float33",
		"float32[0]":         "expected a positive number",
		"float32[a]":         "expected a positive number",
		"=float32[1]":        "expected a type and the shape",
	} {
		got, err := ParseTensor(text, "input")
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v: expected %q", text, err, want)
			}
			continue
		}
		if shown := strings.Join([]string{got.Name, got.DType, fmt.Sprint(got.Shape)}, " "); shown != want {
			t.Errorf("%s: got %q: expected %q", text, shown, want)
		}
	}
}

func TestDescriptions(t *testing.T) {
	for output, want := range map[string]string{
		"a library says hello\n{\"inputs\":[{\"name\":\"x\"}],\"outputs\":[{\"name\":\"y\"}]}\n": "",
		`{"missing":"onnxruntime","requirements":["onnxruntime"]}`:                               "",
		"":             "not described",
		"{}":           "no inputs",
		"Traceback...": "not described",
	} {
		_, err := ParseDescription([]byte(output))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v: expected %q", output, err, want)
		}
	}
}

func FuzzRecognise(f *testing.F) {
	for _, seed := range [][]byte{graph(), []byte(`{"learner":{`), []byte("tree\n"), []byte("PK\x03\x04"), torchMagic, {8, 10, 58, 255, 255, 255, 255, 255, 255, 255, 255, 127}} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, contents []byte) {
		write(t, path, contents)
		if found, err := Recognise(path); err == nil && len(found.Source()) == 0 {
			t.Errorf("there is no runtime %s", found.Name)
		}
	})
}
