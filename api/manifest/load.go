package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads a manifest, or all manifests in a directory (*.yaml, *.yml, *.json; subdirectories are not read), as one
// set. The Dir of a model becomes an absolute path: the directory of its file, or the model's own dir relative to that
// directory.
func Load(path string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.IsDir() {
		return loadFile(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	var all Set
	var errs Errors
	origin := map[string]string{}
	files := 0
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			continue
		}
		files++
		file := filepath.Join(path, name)
		set, err := loadFile(file)
		var found Errors
		switch {
		case errors.As(err, &found):
			errs = append(errs, found...)
		case err != nil:
			return nil, err
		default:
			errs = append(errs, all.merge(set, file, origin)...)
		}
	}
	switch {
	case len(errs) > 0:
		return nil, errs[:min(len(errs), MaxErrors)]
	case files == 0:
		return nil, fmt.Errorf("%s: has no manifest: expected files named *.yaml, *.yml or *.json", path)
	}
	return &all, nil
}

// LoadModelDir reads the xebec.yaml of a model directory. It must declare exactly one model, and may declare functions
// and traffic.
func LoadModelDir(dir string) (*Set, error) {
	path := filepath.Join(dir, ModelFile)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, fileError(dir, err)
	case !info.IsDir():
		return nil, fmt.Errorf("%s: is a file: expected a model directory, with a file %s", dir, ModelFile)
	}
	set, err := loadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: is not a model directory: it has no file %s", dir, ModelFile)
	}
	if err != nil {
		return nil, err
	}
	if len(set.Models) != 1 {
		return nil, fmt.Errorf("%s: declares %d models: expected one", path, len(set.Models))
	}
	return set, nil
}

func loadFile(path string) (*Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fileError(path, err)
	}
	set, err := Decode(path, data)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fileError(path, err)
	}
	set.SetDir(dir)
	for i := range set.Models { // a model directory is mounted for an image too
		if m := &set.Models[i]; m.Dir == "" && filepath.Base(path) == ModelFile {
			m.Dir = dir
		}
	}
	return set, nil
}

// merge adds the objects of a file unless one of them is already declared. origin maps each object to the file that
// declares it.
func (s *Set) merge(from *Set, file string, origin map[string]string) Errors {
	var errs Errors
	claim := func(what string) {
		if first, twice := origin[what]; twice {
			errs = append(errs, &Error{File: file, Message: fmt.Sprintf("%s is declared twice: first in %s", what, first)})
			return
		}
		origin[what] = file
	}
	for i := range from.Models {
		claim("model " + from.Models[i].ID().String())
	}
	for i := range from.Functions {
		claim("function " + from.Functions[i].Name)
	}
	for i := range from.Traffic {
		claim("traffic " + from.Traffic[i].Model)
	}
	if len(errs) == 0 {
		s.Append(from)
	}
	return errs
}

// fileError leaves out the name of the system call: "models.yaml: no such file or directory".
func fileError(path string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return fmt.Errorf("%s: %w", path, pathError.Err)
	}
	return fmt.Errorf("%s: %w", path, err)
}
