package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// Limits of a manifest.
const (
	// MaxBytes holds 10,000 declared models with room to spare. The reader takes up to 100 bytes of memory for each.
	MaxBytes = 4 << 20
	// MaxDocuments bounds the specs that come out of one manifest.
	MaxDocuments = 16384
	// MaxDepth is more than the deepest field that has a meaning (a default output of the largest rank).
	MaxDepth = 32
)

// ModelFile is the file that makes a directory a model directory. In it, and only there, a document without kind is a Model.
const ModelFile = "xebec.yaml"

// Decode reads the documents of one manifest, YAML or JSON; a list at the top is a list of documents. The name is that of
// the file, for messages. Models have no Dir yet. The error is [Errors].
func Decode(name string, data []byte) (*Set, error) {
	if len(data) > MaxBytes {
		return nil, Errors{{File: name, Message: fmt.Sprintf("has %d bytes: expected at most %d", len(data), MaxBytes)}}
	}
	roots, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	d := &decoder{file: name, kindless: filepath.Base(name) == ModelFile, lines: map[string]int{}}
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
		return nil, Errors{{File: name, Line: 1, Column: 1, Message: "declares nothing: expected documents with kind: Model or kind: Function"}}
	}
	return &d.set, nil
}

// parse returns the documents' root nodes; documents that hold nothing but comments are left out.
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
	// positions are those of the present document's fields; functionFields keeps them for each function of the set.
	positions      map[string]*yaml.Node
	functionFields []map[string]*yaml.Node
	// lines is where each object was declared.
	lines map[string]int
}

func (d *decoder) errorf(n *yaml.Node, path, format string, args ...any) {
	if len(d.errs) < MaxErrors {
		d.errs = append(d.errs, &Error{File: d.file, Line: n.Line, Column: n.Column, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// plain refuses what manifests do without, all over the document: anchors and aliases (a small file must not become a large
// set), tags (they choose types behind the reader's back), keys that are not strings, keys that are there twice.
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
	kind := o.text("kind")
	if kind == "" && len(d.errs) == before {
		if !d.kindless {
			d.errorf(root, "kind", "is missing: expected kind: Model or kind: Function")
			return
		}
		kind = string(api.KindModel)
	}
	switch api.Kind(kind) {
	case api.KindModel:
		spec := d.model(o).WithDefaults()
		d.finish(o, before, spec.Validate)
		d.once("model "+spec.ID().String(), before)
		d.set.Models = append(d.set.Models, spec)
		d.set.models = append(d.set.models, remember(d.file, api.KindModel, d.positions))
	case api.KindFunction:
		spec := d.function(o).WithDefaults()
		d.finish(o, before, spec.Validate)
		d.once("function "+spec.Name, before)
		d.set.Functions = append(d.set.Functions, spec)
		d.set.functions = append(d.set.functions, remember(d.file, api.KindFunction, d.positions))
		d.functionFields = append(d.functionFields, d.positions)
	default:
		if kind != "" {
			d.errorf(d.position("kind"), "kind", "%q: expected Model or Function", clip(kind))
		}
	}
}

// once reports an object that was declared before.
func (d *decoder) once(what string, before int) {
	if len(d.errs) > before {
		return // its name may be part of what is wrong
	}
	if first, twice := d.lines[what]; twice {
		d.errorf(d.position("name"), "name", "%s is declared twice: first at line %d", what, first)
		return
	}
	d.lines[what] = d.position("name").Line
}

// finish reports unknown fields and, when the document could be read at all, what the spec itself finds wrong.
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

// position finds the node of a path, or of the nearest field around it that is there.
func (d *decoder) position(path string) *yaml.Node {
	for {
		if n := d.positions[path]; n != nil {
			return n
		}
		path = around(path)
	}
}

// checkTogether judges functions against the models that the same manifest declares. A name without a version is judged
// only where the manifest has one version of it; what it means otherwise, the gateway knows.
func (d *decoder) checkTogether() {
	if len(d.errs) > 0 {
		return
	}
	byName := make(map[string][]*api.ModelSpec, len(d.set.Models))
	for i := range d.set.Models {
		m := &d.set.Models[i]
		byName[m.Name] = append(byName[m.Name], m)
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
			versions := byName[id.Name]
			if id.Version != "" {
				versions = slices.DeleteFunc(slices.Clone(versions), func(m *api.ModelSpec) bool { return m.Version != id.Version })
			}
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
