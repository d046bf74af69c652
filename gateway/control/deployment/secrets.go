package deployment

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/internal/secret"
	"go.uber.org/zap"
)

// maxSecretBytes bounds the values that a replica gets from files. The kernel takes 128 KiB a variable, the name included.
const maxSecretBytes = 64 << 10 //xebec:limit values of `run.env` from files, of one model together

// secrets reads the variables whose values are in files, at each start of a replica: a value that has been renewed is the next
// replica's. Nothing keeps the values.
func (d *Deployment) secrets(replica uint64) ([]string, error) {
	spec := d.Spec()
	var env []string
	total := 0
	for _, name := range secretNames(spec) {
		path := spec.Run.Env[name].File
		if !filepath.IsAbs(path) && spec.Dir != "" {
			path = filepath.Join(spec.Dir, path)
		}
		value, open, err := secretValue(path)
		if total += len(value); err == nil && total > maxSecretBytes {
			err = fmt.Errorf("with it the values from files take %d bytes: expected at most %d together", total, maxSecretBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("run.env.%s.valueFrom.file: %w", name, err)
		}
		if open {
			warning := fmt.Sprintf("run.env.%s: every user of this machine can read the file of its value: chmod o-rwx %s", name, path)
			d.logs.Add(replica, containers.System, warning)
			d.h.Log.Warn("a value is not secret", zap.Stringer("model", d.id), zap.Uint64("replica", replica), zap.String("reason", warning))
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// secretValue reads the value that a file has. A newline at its end, which editors add, does not belong to it. open reports whether
// any user may read it. No error quotes the content.
func secretValue(path string) (value string, open bool, err error) {
	if !filepath.IsAbs(path) {
		return "", false, fmt.Errorf("%q is relative, and the model has no directory: expected an absolute path", path)
	}
	f := secret.File{Path: path, What: "file", MaxBytes: maxSecretBytes, Now: time.Now}
	data, err := f.Read()
	if err != nil {
		return "", false, err
	}
	if line, ended := bytes.CutSuffix(data, []byte("\n")); ended {
		data = bytes.TrimSuffix(line, []byte("\r"))
	}
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return "", false, fmt.Errorf("the file %s has a NUL byte at offset %d, which no variable can have: is it the right file?", path, at)
	}
	if !utf8.Valid(data) {
		return "", false, fmt.Errorf("the file %s is not UTF-8 text: encode its content, for example as base64", path)
	}
	return string(data), f.Mode().Perm()&0o004 != 0, nil
}

// secretNames are the variables whose values are in files, sorted.
func secretNames(spec *api.ModelSpec) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(spec.Run.Env)) {
		if spec.Run.Env[name].File != "" {
			names = append(names, name)
		}
	}
	return names
}

// environment is what the spec says of the environment, without what is in files. Python writes what a model prints at
// once, also while it loads: without the variable a pipe gets it when 8 KiB have gathered, or at the end.
func environment(spec *api.ModelSpec) []string {
	env := []string{"PYTHONUNBUFFERED=1"}
	for name, v := range spec.Run.Env {
		if v.File == "" {
			env = append(env, name+"="+v.Value)
		}
	}
	return env
}
