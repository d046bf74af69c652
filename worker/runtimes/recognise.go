package runtimes

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	// headBytes of a file are looked at: enough for the first members of a model in JSON.
	headBytes = 64 << 10
	// maxMembers bounds what is looked at of an archive, and maxFiles that of a directory.
	maxMembers = 65536
	maxFiles   = 65536
	// maxFields bounds the fields of an ONNX model that are skipped to find its graph. A model has about ten.
	maxFields = 4096
)

// Recognise says what a file or a directory is, by its content. Its error says what is expected, or what to do with a
// file that is known and not served.
func Recognise(name string) (*Found, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return recogniseDir(name)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is neither a file nor a directory", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	head = head[:n]
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return recogniseZip(name, f, info.Size())
	case bytes.HasPrefix(head, torchMagic):
		return &Found{Format: "a pickle of PyTorch", Name: "torch", Flags: []string{"--form", "pickle"}, Pickle: "torch.save has pickled it"}, nil
	case isPickle(head, name):
		return &Found{Format: "a pickle of Python, taken for an estimator", Name: "sklearn", Pickle: "joblib and pickle have one format"}, nil
	case bytes.HasPrefix(text, []byte("{")) && bytes.Contains(head, []byte(`"learner"`)), bytes.HasPrefix(head, []byte("{L")) && bytes.Contains(head, []byte("learner{")):
		return &Found{Format: "a model of XGBoost", Name: "xgboost"}, nil
	case bytes.HasPrefix(text, []byte("tree\n")), bytes.HasPrefix(text, []byte("tree\r\n")):
		return &Found{Format: "a model of LightGBM", Name: "lightgbm"}, nil
	case isONNX(f, info.Size()):
		return &Found{Format: "an ONNX graph", Name: "onnx", Beside: externalData(name)}, nil
	}
	if strings.EqualFold(filepath.Ext(name), ".csv") { // any text may be one
		return &Found{Format: "a table (CSV)", Name: Table}, nil
	}
	for _, known := range others {
		if bytes.HasPrefix(head[min(known.at, len(head)):], []byte(known.magic)) || known.suffix != "" && strings.HasSuffix(strings.ToLower(name), known.suffix) {
			return nil, fmt.Errorf("%s: is %s", name, known.what)
		}
	}
	return nil, fmt.Errorf("%s: is none of the formats that are known: expected %s", name, Formats)
}

// Formats lists what Recognise knows.
const Formats = "an ONNX graph, a model of XGBoost (JSON or UBJSON) or LightGBM (text), a program of PyTorch (TorchScript or torch.export), a pickle or joblib file of an estimator, a table (.csv), " +
	"or a directory that MLflow, Transformers or Sentence Transformers have saved"

// others are formats that are known and not served.
var others = []struct {
	at            int
	magic, suffix string
	what          string
}{
	{magic: "\x89HDF\r\n\x1a\n", what: "a file of HDF5, as Keras writes it: export the model to ONNX (tf2onnx), or write a model.py that loads it"},
	{magic: "GGUF", what: "a GGUF file: write a model.py that loads it with llama-cpp-python"},
	{at: 4, magic: "TFL3", what: "a TensorFlow Lite file: export the model to ONNX (tf2onnx), or write a model.py that loads it"},
	{at: 8, magic: `{"`, suffix: ".safetensors", what: "a file of weights without a program: deploy the directory that save_pretrained has written, with its config.json"},
}

// torchMagic begins what torch.save wrote before it wrote archives.
var torchMagic = []byte("\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19")

// isPickle recognises pickles of protocol 2 and later, and, by their suffix, compressed ones and those of older protocols.
func isPickle(head []byte, name string) bool {
	if len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 {
		return true
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".pkl", ".pickle", ".joblib", ".gz", ".z", ".bz2", ".xz", ".lzma", ".lz4":
	default:
		return false
	}
	for _, magic := range []string{"\x78", "\x1f\x8b", "BZh", "\xfd7zXZ", "\x5d\x00", "\x04\x22\x4d\x18", "(", "c"} { // zlib, gzip, bzip2, xz, lzma, lz4; protocol 0 and 1
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}

// recogniseZip tells the archives of PyTorch apart.
func recogniseZip(name string, f io.ReaderAt, size int64) (*Found, error) {
	archive, err := zip.NewReader(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: is a damaged archive: %w", name, err)
	}
	if len(archive.File) > maxMembers {
		return nil, fmt.Errorf("%s: is an archive of %d files: expected at most %d", name, len(archive.File), maxMembers)
	}
	var code, constants, data, exported bool
	for _, member := range archive.File {
		_, below, _ := strings.Cut(member.Name, "/")
		code = code || strings.HasPrefix(below, "code/")
		constants = constants || below == "constants.pkl"
		data = data || below == "data.pkl"
		exported = exported || member.Name == "serialized_exported_program.json" || strings.HasPrefix(below, "models/") && strings.HasSuffix(below, ".json") || strings.HasPrefix(member.Name, "models/") && path.Ext(member.Name) == ".json"
		if member.Name == "metadata.json" && strings.HasSuffix(strings.ToLower(name), ".keras") {
			return nil, fmt.Errorf("%s: is a model of Keras: export it to ONNX (tf2onnx), or write a model.py that loads it", name)
		}
	}
	switch {
	case exported:
		return &Found{Format: "an exported program of PyTorch", Name: "torch", Flags: []string{"--form", "exported"}}, nil
	case code && constants:
		return &Found{Format: "a TorchScript program", Name: "torch", Flags: []string{"--form", "torchscript"}}, nil
	case data:
		return &Found{Format: "a pickle of PyTorch", Name: "torch", Flags: []string{"--form", "pickle"}, Pickle: "torch.save has pickled it"}, nil
	}
	return nil, fmt.Errorf("%s: is an archive, and none of PyTorch: expected %s", name, Formats)
}

// isONNX reports whether the file is a message of protocol buffers with the fields of an ONNX model: an IR version, a
// graph and an operator set. It reads the fields' heads and skips their contents.
func isONNX(f io.ReaderAt, size int64) bool {
	const varint, fixed64, bytesOf, fixed32 = 0, 1, 2, 5
	var version, graph, operators bool
	at := int64(0)
	head := make([]byte, 2*binary.MaxVarintLen64)
	for range maxFields {
		if at == size {
			return version && graph && operators
		}
		n, err := f.ReadAt(head, at)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		key, keyBytes := binary.Uvarint(head[:n])
		if keyBytes <= 0 {
			return false
		}
		value, valueBytes := binary.Uvarint(head[keyBytes:n])
		at += int64(keyBytes)
		switch key & 7 {
		case varint:
			at += int64(valueBytes)
		case fixed64:
			at, valueBytes = at+8, 8
		case fixed32:
			at, valueBytes = at+4, 4
		case bytesOf:
			if value > uint64(size) {
				return false
			}
			at += int64(valueBytes) + int64(value)
		default:
			return false
		}
		if valueBytes <= 0 || at > size {
			return false
		}
		version = version || key == 1<<3|varint
		graph = graph || key == 7<<3|bytesOf
		operators = operators || key == 8<<3|bytesOf
	}
	return false
}

// externalData names the files beside an ONNX graph that have its weights, by the names that exporters give them.
func externalData(name string) (beside []string) {
	for _, suffix := range []string{".data", "_data"} {
		if info, err := os.Stat(name + suffix); err == nil && info.Mode().IsRegular() {
			beside = append(beside, filepath.Base(name)+suffix)
		}
	}
	return beside
}

func recogniseDir(dir string) (*Found, error) {
	pickles, code, err := pickled(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case isFile(dir, "MLmodel"):
		found := &Found{Format: "a model of MLflow", Name: "mlflow"}
		switch {
		case pickles != "":
			found.Pickle = "it has the pickle " + pickles
		case code != "":
			found.Pickle = "it brings along code, such as " + code
		}
		if isFile(dir, "requirements.txt") {
			found.Requirements = "requirements.txt"
		}
		return found, nil
	case isFile(dir, "config.json"):
		found := &Found{Format: "a model of Transformers", Name: "huggingface"}
		if isFile(dir, "modules.json") {
			found.Format = "a model of Sentence Transformers"
		}
		weights, _ := filepath.Glob(filepath.Join(escaped(dir), "*.safetensors"))
		if len(weights) == 0 {
			if pickles == "" {
				return nil, fmt.Errorf("%s: has a config.json and no weights: expected *.safetensors, as save_pretrained writes them", dir)
			}
			found.Pickle = "its weights are the pickle " + pickles + "; save_pretrained writes safetensors, which are none"
		}
		return found, nil
	}
	return nil, fmt.Errorf("%s: is none of the directories that are known: expected xebec.yaml for a model directory, MLmodel for one of MLflow, or config.json for one of Transformers or Sentence Transformers", dir)
}

// escaped is a path without the characters that patterns give a meaning.
func escaped(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

func isFile(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular()
}

// pickled names a file below dir that is a pickle, and one of Python code.
func pickled(dir string) (pickle, code string, err error) {
	files := 0
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if files++; files > maxFiles {
			return fmt.Errorf("%s: has more than %d files: expected the directory of one model", dir, maxFiles)
		}
		if d.IsDir() {
			return nil
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink == 0 && !d.Type().IsRegular() {
			return fmt.Errorf("%s: is neither a file nor a directory", file)
		}
		switch strings.ToLower(filepath.Ext(name)) {
		case ".py":
			code = name
		case ".pkl", ".pickle", ".joblib", ".cloudpickle", ".pt", ".pth", ".bin", ".ckpt":
			pickle = name
		default:
			if found, err := Recognise(file); err == nil && found.Pickle != "" {
				pickle = name
			}
		}
		return nil
	})
	return pickle, code, err
}
