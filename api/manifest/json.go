package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// jsonNodes reads one JSON text, known to be valid, into the nodes that a YAML reader would return. YAML contains JSON
// only in theory: its reader refuses surrogate pairs ("\ud83d\ude00") and some characters that JSON does not escape.
func jsonNodes(data []byte) (*yaml.Node, error) {
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1, column: 1}
	r.dec.UseNumber()
	return r.value(0)
}

type jsonReader struct {
	dec  *json.Decoder
	data []byte
	// line and column are the position of data[at].
	at, line, column int
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, n, err := r.token()
	if err != nil {
		return nil, err
	}
	if depth > MaxDepth {
		return n, nil // plain refuses it, with the position
	}
	switch token := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if token == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for r.dec.More() {
			if n.Kind == yaml.MappingNode {
				key, keyNode, err := r.token()
				if err != nil {
					return nil, err
				}
				keyNode.Tag, keyNode.Value = "!!str", key.(string)
				n.Content = append(n.Content, keyNode)
			}
			item, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
			if depth == MaxDepth {
				return n, nil
			}
		}
		_, err := r.dec.Token() // the closing bracket
		return n, err
	case json.Number:
		// Use YAML's interpretation of the digits: it reads whole numbers beyond 64 bits as floats, and would otherwise
		// write a tag.
		n.Value = token.String()
		if n.Tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}).ShortTag(); n.Tag != "!!int" {
			n.Tag = "!!float"
		}
	case string:
		n.Tag, n.Value = "!!str", token
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(token)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// token reads the next token and returns a scalar node at its position.
func (r *jsonReader) token() (json.Token, *yaml.Node, error) {
	// The decoder's offset is the end of the last token. Blanks and one comma or colon may follow.
	r.advance(int(r.dec.InputOffset()))
	for r.at < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[r.at]) >= 0 {
		r.advance(r.at + 1)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line, Column: r.column}
	token, err := r.dec.Token()
	return token, n, err
}

func (r *jsonReader) advance(to int) {
	for r.at < to {
		c, size := utf8.DecodeRune(r.data[r.at:])
		r.at += size
		r.column++
		if c == '\n' {
			r.line++
			r.column = 1
		}
	}
}
