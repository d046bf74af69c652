package declarations

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// maxModelDirs bounds a walk through a directory that was named by mistake.
const maxModelDirs = 65536

// Load reads every path as manifests, or as a directory with manifests and, at any depth, model directories. A model directory
// declares a function of its model's name, unless a function of that name is declared anywhere. warnings name the directories that
// have neither: one may be filled later.
func Load(paths []string) (set *manifest.Set, warnings []string, err error) {
	all := &manifest.Set{}
	for _, path := range paths {
		set, err := loadPath(path)
		if err != nil {
			return nil, nil, err
		}
		if set == nil {
			warnings = append(warnings, fmt.Sprintf("--config %s: has neither manifests (*.yaml, *.yml, *.json) nor model directories (with a %s)", path, manifest.ModelFile))
			continue
		}
		all.Append(set)
	}
	declared := map[string]bool{}
	for _, f := range all.Functions {
		if declared[f.Name] {
			return nil, nil, fmt.Errorf("--config: function %s is declared twice", f.Name)
		}
		declared[f.Name] = true
	}
	dirOf := map[api.ModelID]string{}
	for _, m := range all.Models {
		if other, twice := dirOf[m.ID()]; twice {
			return nil, nil, fmt.Errorf("--config: model %s is declared twice, in %s and in %s", m.ID(), other, m.Dir)
		}
		dirOf[m.ID()] = m.Dir
	}
	for _, m := range all.Models {
		if fromModelDir(m) && !declared[m.Name] {
			declared[m.Name] = true
			all.Functions = append(all.Functions, implied(m.Name))
		}
	}
	return all, warnings, nil
}

// fromModelDir reports whether the spec came from a model directory rather than from a manifest beside others.
func fromModelDir(m api.ModelSpec) bool {
	_, err := os.Stat(filepath.Join(m.Dir, manifest.ModelFile))
	return err == nil
}

// loadPath returns nil for a directory that has nothing to read.
func loadPath(path string) (*manifest.Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if !info.IsDir() {
		return manifest.Load(path)
	}
	all := &manifest.Set{}
	var dirs []string
	plain := false
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != path && e.Name()[0] == '.':
			return fs.SkipDir
		case e.IsDir():
			return nil
		case e.Name() == manifest.ModelFile:
			if dirs = append(dirs, filepath.Dir(p)); len(dirs) > maxModelDirs {
				return fmt.Errorf("--config %s: more than %d model directories", path, maxModelDirs)
			}
		case filepath.Dir(p) == filepath.Clean(path):
			switch filepath.Ext(p) {
			case ".yaml", ".yml", ".json":
				plain = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(dirs) == 1 && dirs[0] == filepath.Clean(path) {
		return loadModelDir(path)
	}
	if len(dirs) == 0 && !plain {
		return nil, nil
	}
	if plain {
		if all, err = manifest.Load(path); err != nil {
			return nil, err
		}
	}
	sort.Strings(dirs)
	var errs []error
	for _, dir := range dirs {
		if dir == filepath.Clean(path) {
			continue // read as a manifest above
		}
		set, err := loadModelDir(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all.Append(set)
	}
	return all, errors.Join(errs...)
}

// loadModelDir reads a model directory, whose path may be relative.
func loadModelDir(dir string) (*manifest.Set, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return manifest.LoadModelDir(abs)
}
