package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// YAML writes the set as a stream of documents: models, functions, traffic. It includes the models' directories, so
// that the text means the same wherever it is stored.
func (s *Set) YAML() ([]byte, error) {
	docs, err := s.documents()
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	if slices.ContainsFunc(s.Models, func(m api.ModelSpec) bool { return m.HasMasks() }) {
		out.WriteString(maskedHead)
	}
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, doc := range docs {
		root, err := jsonNodes(doc)
		if err != nil {
			return nil, err
		}
		quote(root)
		style(root, "")
		if err := enc.Encode(root); err != nil {
			return nil, fmt.Errorf("write YAML: %w", err)
		}
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return out.Bytes(), nil
}

// maskedHead stands above documents with masked values.
const maskedHead = `# Values of environment variables are masked here, and a manifest with masked values cannot be applied: --show-secrets shows the values.
`

// JSON writes the set as a list of documents; see [Set.YAML].
func (s *Set) JSON() ([]byte, error) {
	docs, err := s.documents()
	if err != nil {
		return nil, err
	}
	all := bytes.Join(docs, []byte(","))
	all = slices.Concat([]byte("["), all, []byte("]"))
	var out bytes.Buffer
	if err := json.Indent(&out, all, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func (s *Set) documents() ([][]byte, error) {
	docs := make([][]byte, 0, s.Len())
	add := func(kind api.Kind, spec json.Marshaler) error {
		raw, err := spec.MarshalJSON()
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		docs = append(docs, slices.Concat([]byte(fmt.Sprintf(`{"kind":%q,`, kind)), raw[1:]))
		return nil
	}
	for i := range s.Models {
		if err := add(api.KindModel, s.Models[i]); err != nil {
			return nil, err
		}
	}
	for i := range s.Functions {
		if err := add(api.KindFunction, s.Functions[i]); err != nil {
			return nil, err
		}
	}
	for i := range s.Traffic {
		if err := add(api.KindTraffic, s.Traffic[i]); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// YAMLFromJSON writes one JSON text as YAML. It keeps the order of members.
func YAMLFromJSON(text []byte) ([]byte, error) {
	if !json.Valid(text) {
		return nil, errors.New("not JSON")
	}
	root, err := jsonNodes(text)
	if err != nil {
		return nil, err
	}
	quote(root)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return out.Bytes(), enc.Close()
}

func quote(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && (!harmless.MatchString(n.Value) || oldBoolean.MatchString(n.Value)) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		quote(child)
	}
}

// harmless matches text that reads the same in every style of YAML. All other text is written in double quotes, where
// the escapes are those of JSON. (The YAML writer itself quotes text that would read as a number or a boolean.)
var harmless = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./@-]*$`)

// oldBoolean matches what readers of YAML 1.1 read as true or false. Ours does not.
var oldBoolean = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$`)

// blockFields are written one item a line. Any other list or mapping in a document is written on one line.
var blockFields = []string{"", "inputs", "outputs", "run", "env"}

func style(n *yaml.Node, field string) {
	if len(n.Content) > 0 && !slices.Contains(blockFields, field) {
		n.Style = yaml.FlowStyle
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			style(item, "item")
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			style(n.Content[i+1], n.Content[i].Value)
		}
	}
}
