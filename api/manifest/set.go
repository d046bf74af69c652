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

// Set is what one or several manifests declare. Every spec has its defaults and is valid by itself; no model version, no
// function and no model's traffic is there twice.
//
// A set that was decoded remembers where its fields were written, so that whoever judges it later can still name the line:
// see [Set.Refuse]. Specs may be appended to the lists; of those nothing is remembered.
type Set struct {
	Models    []api.ModelSpec
	Functions []api.FunctionSpec
	Traffic   []api.TrafficSpec

	// models, functions and traffic are indexed like the lists, and may be shorter.
	models, functions, traffic []source
}

// source is where one object was written: its fields by path, "" for the document itself.
type source struct {
	file   string
	fields []place
}

type place struct {
	path         string
	line, column int32
}

// Len is the number of objects in the set.
func (s *Set) Len() int { return len(s.Models) + len(s.Functions) + len(s.Traffic) }

// SetDir says in which directory the models were declared: what relative paths in their specs mean, where a model has no dir
// of its own. A relative one is joined to it, an absolute one stays. A model with an image and without a dir keeps to what is in the image: it
// is not shown what happens to lie beside a manifest. With an empty dir nothing is changed; see [Set.CheckDirs].
func (s *Set) SetDir(dir string) {
	if dir == "" {
		return
	}
	for i := range s.Models {
		if m := &s.Models[i]; !filepath.IsAbs(m.Dir) && (m.Dir != "" || m.Run.Image == "") {
			m.Dir = filepath.Join(dir, m.Dir)
		}
	}
}

// CheckDirs refuses the models whose dir is relative to nobody knows what: those of a manifest that came without the directory
// that it lay in. A model without any dir passes. The error is nil or [Errors].
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

// Append adds the objects of another set, with what is remembered of them. Whether they are there already is for the caller.
func (s *Set) Append(from *Set) {
	s.models = append(padded(s.models, len(s.Models)), padded(from.models, len(from.Models))...)
	s.functions = append(padded(s.functions, len(s.Functions)), padded(from.functions, len(from.Functions))...)
	s.traffic = append(padded(s.traffic, len(s.Traffic)), padded(from.traffic, len(from.Traffic))...)
	s.Models = append(s.Models, from.Models...)
	s.Functions = append(s.Functions, from.Functions...)
	s.Traffic = append(s.Traffic, from.Traffic...)
}

// padded makes the list as long as its specs; those without a source get an empty one.
func padded(list []source, n int) []source {
	return append(list[:min(len(list), n):len(list)], make([]source, max(0, n-len(list)))...)
}

// Locate says where a field of object i of its kind was written, "models.yaml:12:9"; of one that was not written, where the
// nearest field around it was. It is "" where nothing is known.
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

// around is the path of the field that a field is part of.
func around(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// Index finds an object of the set by its name, and a model by its version too; -1 when it is not there.
func (s *Set) Index(kind api.Kind, name, version string) int {
	switch kind {
	case api.KindFunction:
		return slices.IndexFunc(s.Functions, func(f api.FunctionSpec) bool { return f.Name == name })
	case api.KindTraffic:
		return slices.IndexFunc(s.Traffic, func(t api.TrafficSpec) bool { return t.Model == name })
	}
	return slices.IndexFunc(s.Models, func(m api.ModelSpec) bool { return m.Name == name && m.Version == version })
}

// Refuse turns what is wrong with object i of its kind into [Errors] that name the object and the lines: one for each of
// [api.FieldErrors], else one for the whole object. It is nil when err is.
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

// Relocate turns problems that a gateway found in this set, as it was sent there, into [Errors] with the lines of the files
// that it was read from. Problems with objects that are not in the set keep their texts.
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

// remember keeps the positions of a document's fields. Of a model only those at its top are kept: there can be ten thousand
// models, and what is judged after decoding is whole fields. Of a default output only its own: it can have as many elements as
// the file has bytes.
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
