package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// Set is the content of one or several manifests. Every spec has its defaults and is valid by itself. No object is in a
// set twice.
//
// A decoded set keeps the positions of its fields, so that a later check can still report the line: see [Set.Refuse].
// Callers may append specs to the lists; those have no positions.
type Set struct {
	Models    []api.ModelSpec
	Functions []api.FunctionSpec
	Traffic   []api.TrafficSpec

	// models, functions and traffic are indexed like the lists, and may be shorter.
	models, functions, traffic []source

	base string // of SetDir
}

// source is where one object is written: its fields by path, with "" for the document itself.
type source struct {
	file   string
	fields []place
}

type place struct {
	path         string
	line, column int32
}

// Len returns the number of objects in the set.
func (s *Set) Len() int { return len(s.Models) + len(s.Functions) + len(s.Traffic) }

// SetDir sets the directory that the models' relative paths refer to. A relative dir of a model is joined to it, an
// absolute one stays. A model with an image and without a dir keeps none, because its files are in the image and it
// must not see what is beside the manifest. An empty dir changes nothing; see [Set.CheckDirs].
func (s *Set) SetDir(dir string) {
	if dir == "" {
		return
	}
	s.base = dir
	for i := range s.Models {
		if m := &s.Models[i]; !filepath.IsAbs(m.Dir) && (m.Dir != "" || m.Run.Image == "") {
			m.Dir = filepath.Join(dir, m.Dir)
		}
	}
}

// Base is the directory that [Set.SetDir] was given, which may be any where a manifest lay; empty: it is not known.
func (s *Set) Base() string { return s.base }

// CheckDirs refuses models with a relative dir, for manifests that arrive without the directory that they were in. A
// model without a dir passes. The error is nil or [Errors].
func (s *Set) CheckDirs() error {
	var errs Errors
	for i := range s.Models {
		if dir := s.Models[i].Dir; dir != "" && !filepath.IsAbs(dir) && len(errs) < MaxErrors {
			const what = "%q is relative, and the directory of the manifest is not known: expected an absolute path"
			errs = append(errs, s.refuse(api.KindModel, i, api.FieldError{Path: "dir", Message: fmt.Sprintf(what, clip(dir))}))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// Append adds the objects of another set with their positions. The caller ensures that no object is in both.
func (s *Set) Append(from *Set) {
	s.models = append(padded(s.models, len(s.Models)), padded(from.models, len(from.Models))...)
	s.functions = append(padded(s.functions, len(s.Functions)), padded(from.functions, len(from.Functions))...)
	s.traffic = append(padded(s.traffic, len(s.Traffic)), padded(from.traffic, len(from.Traffic))...)
	s.Models = append(s.Models, from.Models...)
	s.Functions = append(s.Functions, from.Functions...)
	s.Traffic = append(s.Traffic, from.Traffic...)
}

// padded makes the list as long as its specs. Specs without a source get an empty one.
func padded(list []source, n int) []source {
	return append(list[:min(len(list), n):len(list)], make([]source, max(0, n-len(list)))...)
}

// Locate returns the position of a field of object i of its kind, "models.yaml:12:9". For a field that is not written
// it returns the position of the nearest enclosing field. It returns "" if nothing is known.
func (s *Set) Locate(kind api.Kind, i int, path string) string {
	file, at := s.find(kind, i, path)
	if at == nil {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, at.line, at.column)
}

func (s *Set) find(kind api.Kind, i int, path string) (string, *place) {
	list := s.models
	switch kind {
	case api.KindFunction:
		list = s.functions
	case api.KindTraffic:
		list = s.traffic
	}
	if i < 0 || i >= len(list) {
		return "", nil
	}
	of := &list[i]
	for {
		if n, ok := slices.BinarySearchFunc(of.fields, path, func(p place, path string) int { return strings.Compare(p.path, path) }); ok {
			return of.file, &of.fields[n]
		}
		if path == "" {
			return of.file, nil
		}
		path = around(path)
	}
}

// around returns the path of the enclosing field.
func around(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// Index returns the index of an object by its name, for a model also by its version, or -1.
func (s *Set) Index(kind api.Kind, name, version string) int {
	switch kind {
	case api.KindFunction:
		return slices.IndexFunc(s.Functions, func(f api.FunctionSpec) bool { return f.Name == name })
	case api.KindTraffic:
		return slices.IndexFunc(s.Traffic, func(t api.TrafficSpec) bool { return t.Model == name })
	}
	return slices.IndexFunc(s.Models, func(m api.ModelSpec) bool { return m.Name == name && m.Version == version })
}

// Refuse turns the problems with object i of its kind into [Errors] with the object's name and the lines: one for each
// of [api.FieldErrors], else one for the whole object. It returns nil if err is nil.
func (s *Set) Refuse(kind api.Kind, i int, err error) error {
	if err == nil {
		return nil
	}
	var fields api.FieldErrors
	if !errors.As(err, &fields) {
		fields = api.FieldErrors{{Message: err.Error()}}
	}
	errs := make(Errors, 0, len(fields))
	for _, f := range fields[:min(len(fields), MaxErrors)] {
		errs = append(errs, s.refuse(kind, i, f))
	}
	return errs
}

func (s *Set) refuse(kind api.Kind, i int, f api.FieldError) *Error {
	name, version := s.name(kind, i)
	e := &Error{Kind: kind, Name: name, Version: version, Path: f.Path, Message: f.Message}
	file, at := s.find(kind, i, f.Path)
	if e.File = file; at != nil {
		e.Line, e.Column = int(at.line), int(at.column)
	}
	return e
}

func (s *Set) name(kind api.Kind, i int) (name, version string) {
	switch {
	case kind == api.KindFunction && i >= 0 && i < len(s.Functions):
		name = s.Functions[i].Name
	case kind == api.KindTraffic && i >= 0 && i < len(s.Traffic):
		name = s.Traffic[i].Model
	case kind == api.KindModel && i >= 0 && i < len(s.Models):
		name, version = s.Models[i].Name, s.Models[i].Version
	}
	return name, version
}

// Relocate turns the problems that a gateway found in this set into [Errors] with the lines of the files that the set
// was read from. Problems with objects that are not in the set keep their texts.
func (s *Set) Relocate(problems []api.Problem) Errors {
	errs := make(Errors, 0, len(problems))
	for _, p := range problems {
		e := &Error{Kind: p.Kind, Name: p.Name, Version: p.Version, Path: p.Path, Message: p.Message}
		if i := s.Index(p.Kind, p.Name, p.Version); i >= 0 {
			file, at := s.find(p.Kind, i, p.Path)
			if e.File = file; at != nil {
				e.Line, e.Column = int(at.line), int(at.column)
			}
		}
		errs = append(errs, e)
	}
	return errs
}

// remember keeps the positions of a document's fields. Of a model it keeps only those of top-level fields: there can be
// ten thousand models, and later checks are about whole fields. Of a default output it keeps only its own position,
// because the output can have as many elements as the file has bytes.
func remember(file string, kind api.Kind, positions map[string]*yaml.Node) source {
	of := source{file: file, fields: make([]place, 0, len(positions))}
	for path, n := range positions {
		if kind == api.KindModel && strings.ContainsAny(path, ".[") || strings.HasPrefix(path, "default.") || strings.HasPrefix(path, "default[") {
			continue
		}
		of.fields = append(of.fields, place{path, int32(n.Line), int32(n.Column)})
	}
	of.fields = slices.Clip(of.fields)
	slices.SortFunc(of.fields, func(a, b place) int { return cmp.Compare(a.path, b.path) })
	return of
}
