package manifest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// object reads the fields of one mapping. Each reader reads one field; done reports the fields that were not read.
type object struct {
	d      *decoder
	node   *yaml.Node
	path   string
	keys   map[string]*yaml.Node
	values map[string]*yaml.Node
	known  []string
}

// object returns nil, after reporting it, if the node is not a mapping.
func (d *decoder) object(n *yaml.Node, path string) *object {
	if n.Kind != yaml.MappingNode {
		d.errorf(n, path, "%s: expected a mapping of fields", describe(n))
		return nil
	}
	o := &object{d: d, node: n, path: path, keys: map[string]*yaml.Node{}, values: map[string]*yaml.Node{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		o.keys[name], o.values[name] = n.Content[i], n.Content[i+1]
	}
	return o
}

func (o *object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// get returns the field's node. It returns nil if the field is missing, or null, which it reports.
func (o *object) get(name string) *yaml.Node {
	if !slices.Contains(o.known, name) { // some fields are read twice
		o.known = append(o.known, name)
	}
	n := o.values[name]
	if n == nil {
		return nil
	}
	o.d.positions[o.at(name)] = n
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		o.d.errorf(n, o.at(name), "is null: give it a value or leave it out")
		return nil
	}
	return n
}

// done reports unknown fields.
func (o *object) done() {
	for i := 0; i+1 < len(o.node.Content); i += 2 {
		key := o.node.Content[i]
		if slices.Contains(o.known, key.Value) || o.path == "" && key.Value == "status" && o.node.Content[i+1].Kind == yaml.MappingNode {
			continue // what `xebec get -o json` prints is a declaration, too: its status is the gateway's
		}
		hint := "expected one of " + strings.Join(o.known, ", ")
		if near := Nearest(key.Value, o.known); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		o.d.errorf(key, o.at(clip(key.Value)), "there is no such field: %s", hint)
	}
}

// text reads a string that is not empty.
func (o *object) text(name string) string {
	n := o.get(name)
	if n == nil {
		return ""
	}
	return o.d.text(n, o.at(name))
}

func (d *decoder) text(n *yaml.Node, path string) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.errorf(n, path, "%s: expected a string", describe(n))
	case n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp":
		d.errorf(n, path, "%s: expected a string; put it in quotes if it is one", describe(n))
	case n.Value == "":
		d.errorf(n, path, "is empty: give it a value or leave it out")
	}
	return n.Value
}

// word reads a scalar of any type as it is written: a version 1.10 is not the number 1.1. It may be empty.
func (d *decoder) word(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		d.errorf(n, path, "%s: expected a string", describe(n))
	}
	return n.Value
}

// integer reads a whole number of at least low.
func (o *object) integer(name string, low int64) int64 {
	n := o.get(name)
	if n == nil {
		return 0
	}
	v, ok := o.d.integer(n, o.at(name))
	if ok && v < low {
		o.d.errorf(n, o.at(name), "%d: expected at least %d", v, low)
	}
	return v
}

func (d *decoder) integer(n *yaml.Node, path string) (int64, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		d.errorf(n, path, "%s: expected a whole number", describe(n))
		return 0, false
	}
	var v int64
	if err := n.Decode(&v); err != nil {
		d.errorf(n, path, "%s does not fit 64 bits", clip(n.Value))
		return 0, false
	}
	return v, true
}

// count reads an integer that fits an int.
func (o *object) count(name string, low int64) int {
	v := o.integer(name, low)
	if int64(int(v)) != v {
		o.d.errorf(o.values[name], o.at(name), "%d is too large", v)
	}
	return int(v)
}

// float reads a finite number that is not negative. positive also refuses zero, for fields where zero would mean the
// default.
func (o *object) float(name string, positive bool) float64 {
	n := o.get(name)
	if n == nil {
		return 0
	}
	path := o.at(name)
	v, ok := o.d.finite(n, path)
	if ok && (v < 0 || positive && v == 0) {
		low := "0 or more"
		if positive {
			low = "more than 0"
		}
		o.d.errorf(n, path, "%s: expected %s", clip(n.Value), low)
	}
	return v
}

// finite reads a finite number of either sign.
func (d *decoder) finite(n *yaml.Node, path string) (float64, bool) {
	if beyondFloat(n) {
		d.errorf(n, path, "%s is beyond the largest float64", clip(n.Value))
		return 0, false
	}
	if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" {
		d.errorf(n, path, "%s: expected a number", describe(n))
		return 0, false
	}
	var v float64
	if err := n.Decode(&v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		d.errorf(n, path, "%s: expected a finite number", clip(n.Value))
		return 0, false
	}
	return v + 0, true // no -0, which would not survive being written
}

// beyondFloat reports whether n is a number beyond the largest float64. YAML reads such a number as text.
func beyondFloat(n *yaml.Node) bool {
	_, err := strconv.ParseFloat(n.Value, 64)
	return n.Kind == yaml.ScalarNode && errors.Is(err, strconv.ErrRange)
}

func (o *object) boolean(name string) (v, given bool) {
	n := o.get(name)
	if n == nil {
		return false, false
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		o.d.errorf(n, o.at(name), "%s: expected true or false", describe(n))
		return false, false
	}
	return n.Value == "true" || n.Value == "True" || n.Value == "TRUE", true
}

// duration reads "20ms". 0 needs no unit. positive refuses zero, for fields where zero would mean the default.
func (o *object) duration(name string, positive bool) time.Duration {
	n := o.get(name)
	if n == nil {
		return 0
	}
	path := o.at(name)
	if n.Kind != yaml.ScalarNode {
		o.d.errorf(n, path, "%s: expected a duration such as 20ms", describe(n))
		return 0
	}
	v, err := time.ParseDuration(n.Value)
	switch {
	case err != nil && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float"):
		o.d.errorf(n, path, "%s has no unit: expected a duration such as %sms", clip(n.Value), clip(n.Value))
	case err != nil:
		o.d.errorf(n, path, "%s is not a duration: expected a number and a unit, such as 500us, 20ms, 1.5s or 2m", clip(strconv.Quote(n.Value)))
	case v < 0 || positive && v == 0:
		low := "0 or more"
		if positive {
			low = "more than 0"
		}
		o.d.errorf(n, path, "%s: expected %s", n.Value, low)
	}
	return v
}

// bytes reads "512MiB", or a plain number of bytes.
func (o *object) bytes(name string) int64 {
	n := o.get(name)
	if n == nil {
		return 0
	}
	if n.Kind != yaml.ScalarNode {
		o.d.errorf(n, o.at(name), "%s: expected a number of bytes such as 512MiB", describe(n))
		return 0
	}
	v, err := api.ParseBytes(n.Value)
	switch {
	case err != nil:
		o.d.errorf(n, o.at(name), "%s", err.Error())
	case v == 0:
		o.d.errorf(n, o.at(name), "%s: expected more than 0", clip(n.Value))
	}
	return v
}

// list calls each for every item of a sequence.
func (o *object) list(name string, each func(n *yaml.Node, path string)) {
	n := o.get(name)
	if n == nil {
		return
	}
	o.d.list(n, o.at(name), each)
}

func (d *decoder) list(n *yaml.Node, path string, each func(n *yaml.Node, path string)) {
	if n.Kind != yaml.SequenceNode {
		d.errorf(n, path, "%s: expected a list", describe(n))
		return
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.positions[at] = item
		each(item, at)
	}
}

// part reads a field that is a mapping.
func (o *object) part(name string, read func(*object)) {
	n := o.get(name)
	if n == nil {
		return
	}
	if sub := o.d.object(n, o.at(name)); sub != nil {
		read(sub)
		sub.done()
	}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "is a mapping"
	case yaml.SequenceNode:
		return "is a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "is null"
	case "!!bool":
		return clip(n.Value) + " is a boolean"
	case "!!int", "!!float":
		return clip(n.Value) + " is a number"
	}
	return clip(strconv.Quote(n.Value)) + " is a string"
}

// clip limits s to one line of 60 characters for use in a message.
func clip(s string) string {
	const limit = 60
	runes := []rune(strings.ToValidUTF8(s, "?"))
	for i, r := range runes {
		if r < ' ' {
			runes[i] = ' '
		}
	}
	if len(runes) <= limit {
		return string(runes)
	}
	return string(runes[:limit]) + "…"
}

// Nearest returns the name that s is most likely a misspelling of, or "".
func Nearest(s string, names []string) string {
	best, distance := "", 3
	for _, name := range names {
		if len(s) > 40 {
			break
		}
		if strings.EqualFold(s, name) || strings.EqualFold(strings.ReplaceAll(s, "-", "_"), name) {
			return name
		}
		if d := edits(s, name); d < distance && 2*d < len(name) {
			best, distance = name, d
		}
	}
	return best
}

// edits is the Levenshtein distance, by Wagner and Fischer's algorithm with one row of the table.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
