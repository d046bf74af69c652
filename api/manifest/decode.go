package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// Limits of a manifest.
const (
	// MaxBytes holds 10,000 models with all defaults, as tools send and export them: about 500 bytes each as YAML, 900
	// as JSON. The reader needs up to 100 bytes of memory for each byte of the worst possible text, and about 30 for
	// such a manifest.
	MaxBytes = 12 << 20 //xebec:limit a manifest, and a body of the admin API
	// MaxDocuments bounds the specs of one manifest.
	MaxDocuments = 16384 //xebec:limit documents in a manifest
	// MaxDepth exceeds the depth of every valid field, the deepest being a default output of the largest rank.
	MaxDepth = 32
)

const expectedKinds = "kind: Model, kind: Function or kind: Traffic"

// ModelFile is the file that makes a directory a model directory. Only in this file is a document without a kind a
// Model.
const ModelFile = "xebec.yaml"

// Decode reads the documents of one manifest, YAML or JSON. A list at the top level is a list of documents. The name is
// the file's, for messages. Models keep the Dir that is written, which may be empty or relative: see [Set.SetDir]. The
// error is [Errors].
func Decode(name string, data []byte) (*Set, error) {
	return (&decoder{file: name}).decode(data)
}

// DecodeRequest is Decode for the body of an apply request. There each document may also have the field "revision": the
// revision at which the client read the object, 0 if it is not declared. The revisions that are given are returned
// beside the set. Files cannot have the field, because it would be out of date after the first apply.
func DecodeRequest(name string, data []byte) (*Set, []api.ObjectRevision, error) {
	d := &decoder{file: name, revised: true}
	set, err := d.decode(data)
	return set, d.revisions, err
}

// DecodeShown is Decode for what a gateway shows: values of environment variables may be masked. The set is for people, and
// for programs that pick from it: it cannot be applied.
func DecodeShown(name string, data []byte) (*Set, error) {
	return (&decoder{file: name, shown: true}).decode(data)
}

func (d *decoder) decode(data []byte) (*Set, error) {
	name := d.file
	if len(data) > MaxBytes {
		return nil, Errors{{File: name, Message: fmt.Sprintf("has %d bytes: expected at most %d", len(data), MaxBytes)}}
	}
	roots, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	d.kindless, d.lines = filepath.Base(name) == ModelFile, map[string]int{}
	if len(roots) > MaxDocuments {
		d.errorf(roots[MaxDocuments], "", "is document %d: expected at most %d", MaxDocuments+1, MaxDocuments)
		return nil, d.errs
	}
	for _, root := range roots {
		if d.plain(root, 0) {
			d.document(root)
		}
	}
	d.checkTogether()
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	if d.set.Len() == 0 {
		return nil, Errors{{File: name, Line: 1, Column: 1, Message: "declares nothing: expected documents with " + expectedKinds}}
	}
	return &d.set, nil
}

// parse returns the root nodes of the documents. It leaves out documents that have only comments.
func parse(name string, data []byte) ([]*yaml.Node, error) {
	if !utf8.Valid(data) {
		return nil, syntaxError(name, data, errors.New("the file is not UTF-8 text"))
	}
	if json.Valid(data) {
		root, err := jsonNodes(data)
		if err != nil {
			return nil, syntaxError(name, data, err)
		}
		return flatten(nil, root), nil
	}
	var roots []*yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for len(roots) <= MaxDocuments {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, syntaxError(name, data, err)
		}
		if len(doc.Content) == 1 {
			roots = flatten(roots, doc.Content[0])
		}
	}
	return roots, nil
}

// flatten appends a document, or each of a list of documents.
func flatten(roots []*yaml.Node, root *yaml.Node) []*yaml.Node {
	switch {
	case root.Kind == yaml.SequenceNode && root.Anchor == "":
		return append(roots, root.Content...)
	case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		return roots
	}
	return append(roots, root)
}

type decoder struct {
	file     string
	kindless bool
	errs     Errors
	set      Set
	// positions are those of the current document's fields. functionFields and trafficFields keep them for each
	// function and each model's traffic of the set.
	positions      map[string]*yaml.Node
	functionFields []map[string]*yaml.Node
	trafficFields  []map[string]*yaml.Node
	// lines has the line that declares each object.
	lines map[string]int
	// revised permits documents to have a revision; revisions are those that were given.
	revised   bool
	revisions []api.ObjectRevision
	// shown permits masked values.
	shown bool
}

func (d *decoder) errorf(n *yaml.Node, path, format string, args ...any) {
	if len(d.errs) < MaxErrors {
		d.errs = append(d.errs, &Error{File: d.file, Line: n.Line, Column: n.Column, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// plain refuses features of YAML that manifests do not have, in the whole document: anchors and aliases (they make a
// small file a large set), tags (they choose types without the reader seeing it), keys that are not strings, and
// duplicate keys.
func (d *decoder) plain(n *yaml.Node, depth int) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.errorf(n, "", "aliases (*%s) are not supported: write the value out", clip(n.Value))
		return false
	case n.Anchor != "":
		d.errorf(n, "", "anchors (&%s) are not supported", clip(n.Anchor))
		return false
	case n.Style&yaml.TaggedStyle != 0:
		d.errorf(n, "", "tags (%s) are not supported: write the value plainly", clip(n.Tag))
		return false
	case depth > MaxDepth:
		d.errorf(n, "", "nests deeper than %d", MaxDepth)
		return false
	}
	ok := true
	if n.Kind == yaml.MappingNode {
		seen := make(map[string]*yaml.Node, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
				d.errorf(key, "", "merge keys (<<) are not supported: write the fields out")
				ok = false
			} else if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" && key.ShortTag() != "!!timestamp" {
				d.errorf(key, "", "the key %s: expected a string", describe(key))
				ok = false
			} else if first := seen[key.Value]; first != nil {
				d.errorf(key, "", "%q is there twice: first at %d:%d", clip(key.Value), first.Line, first.Column)
				ok = false
			}
			seen[key.Value] = key
		}
	}
	for _, child := range n.Content {
		ok = d.plain(child, depth+1) && ok
	}
	return ok
}

func (d *decoder) document(root *yaml.Node) {
	d.positions = map[string]*yaml.Node{"": root}
	before := len(d.errs)
	o := d.object(root, "")
	if o == nil {
		return
	}
	if d.revised {
		o.get("revision") // makes it a known field; revision reads it once the name is known
	}
	kind := o.text("kind")
	if kind == "" && len(d.errs) == before {
		if !d.kindless {
			d.errorf(root, "kind", "is missing: expected "+expectedKinds)
			return
		}
		kind = string(api.KindModel)
	}
	switch api.Kind(kind) {
	case api.KindModel:
		spec := read[api.ModelSpec](o, modelPlan).WithDefaults()
		judged := spec
		if d.shown && spec.HasMasks() {
			judged.Run.Env = nil
		}
		d.finish(o, before, judged.Validate)
		d.once("model "+spec.ID().String(), before)
		d.set.Models = append(d.set.Models, spec)
		d.set.models = append(d.set.models, remember(d.file, api.KindModel, d.positions))
		d.revision(o, api.KindModel, spec.Name, spec.Version)
	case api.KindFunction:
		spec := read[api.FunctionSpec](o, functionPlan).WithDefaults()
		d.finish(o, before, spec.Validate)
		d.once("function "+spec.Name, before)
		d.set.Functions = append(d.set.Functions, spec)
		d.set.functions = append(d.set.functions, remember(d.file, api.KindFunction, d.positions))
		d.functionFields = append(d.functionFields, d.positions)
		d.revision(o, api.KindFunction, spec.Name, "")
	case api.KindTraffic:
		spec := read[api.TrafficSpec](o, trafficPlan).WithDefaults()
		d.finish(o, before, spec.Validate)
		d.once("traffic "+spec.Model, before)
		d.set.Traffic = append(d.set.Traffic, spec)
		d.set.traffic = append(d.set.traffic, remember(d.file, api.KindTraffic, d.positions))
		d.trafficFields = append(d.trafficFields, d.positions)
		d.revision(o, api.KindTraffic, spec.Model, "")
	default:
		if kind != "" {
			d.errorf(d.position("kind"), "kind", "%q: expected Model, Function or Traffic", clip(kind))
		}
	}
}

// revision records the revision at which an object is expected, if the document has one.
func (d *decoder) revision(o *object, kind api.Kind, name, version string) {
	if n := o.values["revision"]; d.revised && n != nil && n.ShortTag() != "!!null" { // get has reported a null
		revision := o.integer("revision", 0)
		d.revisions = append(d.revisions, api.ObjectRevision{Kind: kind, Name: name, Version: version, Revision: uint64(max(revision, 0))})
	}
}

// once reports an object that is declared twice.
func (d *decoder) once(what string, before int) {
	if len(d.errs) > before {
		return // the error may be in its name
	}
	if first, twice := d.lines[what]; twice {
		d.errorf(d.position("name"), "name", "%s is declared twice: first at line %d", what, first)
		return
	}
	d.lines[what] = d.position("name").Line
}

// finish reports unknown fields. If the document has no errors so far, it also reports the problems that validate
// finds.
func (d *decoder) finish(o *object, before int, validate func() error) {
	o.done()
	if len(d.errs) > before {
		return
	}
	d.fieldErrors(validate())
}

func (d *decoder) fieldErrors(err error) {
	var fields api.FieldErrors
	if !errors.As(err, &fields) {
		return
	}
	for _, f := range fields {
		d.errorf(d.position(f.Path), f.Path, "%s", f.Message)
	}
}

// position returns the node of a path, or of the nearest enclosing field that is present.
func (d *decoder) position(path string) *yaml.Node {
	for {
		if n := d.positions[path]; n != nil {
			return n
		}
		path = around(path)
	}
}

// checkTogether checks functions and traffic against the models of the same manifest. It checks a reference without a
// version only if the manifest has exactly one version of the model, and a label only if the manifest declares it. The
// gateway resolves all others.
func (d *decoder) checkTogether() {
	if len(d.errs) > 0 {
		return
	}
	byName := make(map[string][]*api.ModelSpec, len(d.set.Models))
	for i := range d.set.Models {
		m := &d.set.Models[i]
		byName[m.Name] = append(byName[m.Name], m)
	}
	labels := make(map[string]map[string]string, len(d.set.Traffic))
	for i := range d.set.Traffic {
		t := &d.set.Traffic[i]
		labels[t.Model] = t.Labels
		d.positions = d.trafficFields[i]
		d.checkLabels(t, byName[t.Model])
	}
	for i := range d.set.Functions {
		f := &d.set.Functions[i]
		d.positions = d.functionFields[i]
		refs := f.Refs()
		candidates := make([][]*api.ModelSpec, len(refs))
		for j, ref := range refs {
			id, err := api.ParseModelRef(ref)
			if err != nil {
				continue
			}
			versions := meant(byName[id.Name], id.Version, labels[id.Name])
			if len(versions) == 1 {
				if j < len(f.Models) {
					d.fieldErrors(f.CheckModel(versions[0]))
				}
				candidates[j] = versions
			}
		}
		d.fieldErrors(f.CheckCandidates(candidates))
	}
}

// meant returns the versions that a reference means: all if it names none, else the one with that name or label.
func meant(versions []*api.ModelSpec, named string, labels map[string]string) []*api.ModelSpec {
	if named == "" {
		return versions
	}
	for _, name := range []string{named, labels[named]} {
		for i, m := range versions {
			if m.Version == name {
				return versions[i : i+1]
			}
		}
	}
	return nil
}

// checkLabels refuses a label that is also the name of one of the model's versions, because a reference to it would
// mean the version.
func (d *decoder) checkLabels(t *api.TrafficSpec, versions []*api.ModelSpec) {
	var errs api.FieldErrors
	for _, m := range versions {
		if _, is := t.Labels[m.Version]; is {
			errs = append(errs, api.FieldError{Path: "labels." + m.Version, Message: fmt.Sprintf("model %s has this name: expected a label that no version has for its name", m.ID())})
		}
	}
	d.fieldErrors(errs)
}
