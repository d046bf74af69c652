package apptest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// placeholders replace what varies between runs. Equal values get equal placeholders, so a recording still shows which values are equal, and a
// request can use the placeholder of an earlier answer.
type placeholders struct {
	constants [][2]string       // text, placeholder
	values    map[string]string // placeholder → text
	known     map[string]string // kind and text → placeholder
	count     map[string]int    // by kind
	omitted   string            // a member that the answer at hand is recorded without
}

func newPlaceholders() *placeholders {
	return &placeholders{values: map[string]string{}, known: map[string]string{}, count: map[string]int{}}
}

// constant makes a placeholder stand for a text from now on.
func (p *placeholders) constant(text, placeholder string) {
	p.constants = append(p.constants, [2]string{text, placeholder})
	p.values[placeholder] = text
}

// numbered returns the placeholder of a value that the gateway generated: <id1>, <id2>.
func (p *placeholders) numbered(kind, text string) string {
	if name, ok := p.known[kind+text]; ok {
		return name
	}
	p.count[kind]++
	name := fmt.Sprintf("<%s%d>", kind, p.count[kind])
	p.known[kind+text], p.values[name] = name, text
	return name
}

var placeholder = regexp.MustCompile(`<[a-z]+[0-9]*>`)

// expand replaces the placeholders of a request with their values.
func (p *placeholders) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := p.values[name]; ok {
			return value
		}
		return name
	})
}

var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	httpDate  = regexp.MustCompile(`\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`)
	// revision is one of a gateway without a store: it starts at the time in microseconds. A revision of a store is small, and the same in each run.
	revision = regexp.MustCompile(`(^|[^0-9.])([12]\d{15})\b`)
	ordinal  = regexp.MustCompile(`\b(process|replica) \d+\b`)
	// logSource is the beginning of a line of a model's log: time, version, replica.
	logSource = regexp.MustCompile(`(<time> \S+)/\d+`)
	// machine and room are what the gateway found on the machine, and what is left of it.
	machine = regexp.MustCompile(`\([^;("]*(\([^;)"]*\)[^;("]*)*; as --node-cpu`)
	room    = regexp.MustCompile(`of which (\d+) cores, \d+ MiB`)
	// requestID is an X-Request-Id that the gateway has made.
	requestID = regexp.MustCompile(`\b[0-9a-f]{16}-[0-9a-f]{12}\b`)
	digest    = regexp.MustCompile(`\bsha256:[0-9a-f]{64}\b`) // of files that name other files by their paths
	elapsed   = regexp.MustCompile(`\b(after|in|within|took) \d+(\.\d+)?(ns|µs|ms|s| s)\b`)
)

// normalise replaces what varies in a text: addresses, paths, times, revisions, numbers of processes and replicas.
func (p *placeholders) normalise(text string) string {
	for _, c := range p.constants {
		text = strings.ReplaceAll(text, c[0], c[1])
	}
	text = timestamp.ReplaceAllString(text, "<time>")
	text = httpDate.ReplaceAllString(text, "<date>")
	text = requestID.ReplaceAllString(text, "<request>")
	text = digest.ReplaceAllString(text, "sha256:<digest>")
	text = revision.ReplaceAllStringFunc(text, func(match string) string {
		m := revision.FindStringSubmatch(match)
		return m[1] + p.numbered("revision", m[2])
	})
	text = ordinal.ReplaceAllString(text, "$1 <n>")
	text = logSource.ReplaceAllString(text, "$1/<n>")
	text = machine.ReplaceAllString(text, "(<machine>; as --node-cpu")
	text = room.ReplaceAllString(text, "of which $1 cores, <n> MiB")
	return elapsed.ReplaceAllString(text, "$1 <time>")
}

// variable are the members of JSON answers that vary, by name or by the name of the enclosing member and their own. Members with an empty
// placeholder are left out, because they are not always present.
var variable = map[string]string{
	"pid": "<pid>", "go_version": "<version>",
	"start_ms": "<ms>", "took_ms": "<ms>", "p50_ms": "<ms>", "p99_ms": "<ms>", "last_ms": "<ms>", "queries_per_second": "<rate>",
	"samples": "<n>", "mean_micros": "<micros>", "p99_micros": "<micros>", "intercept_micros": "<micros>", "slope_micros": "<micros>",
	"epochs": "<n>", "plan_micros": "<micros>", "plan_p99_micros": "<micros>",
	"replicas.id": "<n>", "replicas.cap": "<n>", "replicas.batches": "<n>", "replica": "<n>",
	"takes.memory_bytes": "<bytes>", "free.memory_bytes": "<bytes>", "zygote_bytes": "<bytes>",
	"cache.bytes": "<bytes>", "held_bytes": "<bytes>", "cache.max_bytes": "<bytes>", "node.from": "<machine>",
	// Present once the gateway has measured them.
	"measured": "", "used_cpu": "", "capacity.profile": "",
	// The header X-Request-Id, which every answer has.
	"request_id": "",
	// Present once the roll-out has been judged, which happens every second.
	"rollout.reason": "",
	// What the machine gives.
	"replicas.isolation": "", "replicas.not_isolated": "",
}

// body renders a body: JSON is laid out over lines and its variable members are replaced, other text is normalised, other bytes are quoted. A
// final newline is shown as \n. jsonLen is the length of the JSON before binary tensors; 0: there are none.
func (p *placeholders) body(body []byte, jsonLen int) string {
	if jsonLen > 0 && jsonLen < len(body) {
		return p.body(body[:jsonLen], 0) + "\n" + strconv.QuoteToASCII(string(body[jsonLen:]))
	}
	text, end := body, ""
	if bytes.HasSuffix(body, []byte("\n")) {
		text, end = body[:len(body)-1], `\n`
	}
	if lines, ok := p.json(text); ok {
		return lines + end
	}
	if !utf8.Valid(body) || bytes.ContainsFunc(body, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return strconv.QuoteToASCII(string(body))
	}
	return p.normalise(string(text)) + end
}

// json renders compact JSON: one value, or one in each line.
func (p *placeholders) json(text []byte) (string, bool) {
	var out strings.Builder
	for line := range bytes.Lines(text) {
		var compact bytes.Buffer
		line, more := bytes.CutSuffix(line, []byte("\n"))
		if err := json.Compact(&compact, line); err != nil || !bytes.Equal(compact.Bytes(), line) {
			return "", false
		}
		p.node("", "", line).layOut(&out, 0)
		if more {
			out.WriteByte('\n')
		}
	}
	return out.String(), true
}

// node is a JSON value that keeps the order of its members and the text of its scalars.
type node struct {
	scalar string
	open   string // "{", "[" or, for a scalar, empty
	keys   []string
	kids   []*node
}

const (
	// idDigits is the least number of digits of a query id. A shorter id in an answer repeats one that the request made up.
	idDigits = 12
	// longest is the length beyond which a scalar is recorded by its beginning, length and hash.
	longest = 2000
)

// node reads a valid JSON value and replaces what varies in it. name is the member that has the value, around the member that encloses it.
func (p *placeholders) node(around, name string, text []byte) *node {
	if replacement, ok := variable[around+"."+name]; ok {
		return &node{scalar: replacement}
	}
	if replacement, ok := variable[name]; ok {
		return &node{scalar: replacement}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	first, _ := dec.Token() // the JSON is valid
	switch first {
	case json.Delim('{'):
		return p.object(name, dec)
	case json.Delim('['):
		n := &node{open: "["}
		for dec.More() {
			var value json.RawMessage
			_ = dec.Decode(&value)
			n.keys, n.kids = append(n.keys, ""), append(n.kids, p.node(around, name, value))
		}
		if name == "contexts" { // in no particular order
			slices.SortFunc(n.kids, func(a, b *node) int { return strings.Compare(a.line(), b.line()) })
		}
		return n
	}
	if name == "query_id" && len(text) >= idDigits {
		return &node{scalar: p.numbered("id", string(text))}
	}
	scalar := p.normalise(string(text))
	if len(scalar) > longest {
		scalar = fmt.Sprintf("%.40s…<%d bytes, SHA-256 %.8x>", scalar, len(scalar), sha256.Sum256([]byte(scalar)))
	}
	return &node{scalar: scalar}
}

// object reads the members of an object.
func (p *placeholders) object(name string, dec *json.Decoder) *node {
	n := &node{open: "{"}
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		_ = dec.Decode(&value)
		if key == p.omitted {
			continue
		}
		if kid := p.node(name, key.(string), value); kid.scalar != "" || kid.open != "" {
			n.keys, n.kids = append(n.keys, strconv.Quote(key.(string))+":"), append(n.kids, kid)
		}
	}
	// Elsewhere "version" is a model's.
	program := slices.Contains(n.keys, `"go_version":`) || slices.Contains(n.keys, `"extensions":`)
	if i := slices.Index(n.keys, `"version":`); i >= 0 && program {
		n.kids[i] = &node{scalar: "<version>"}
	}
	return n
}

// lineWidth is the longest line of JSON.
const lineWidth = 160

var closing = map[string]string{"{": "}", "[": "]"}

// layOut writes a value on one line if it fits, else each member on lines of its own.
func (n *node) layOut(out *strings.Builder, indent int) {
	line := n.line()
	if n.open == "" || indent+len(line) <= lineWidth {
		out.WriteString(line)
		return
	}
	out.WriteString(n.open)
	for i, kid := range n.kids {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n" + strings.Repeat(" ", indent+1) + n.keys[i])
		kid.layOut(out, indent+1)
	}
	out.WriteString("\n" + strings.Repeat(" ", indent) + closing[n.open])
}

// line is a value on one line.
func (n *node) line() string {
	members := make([]string, len(n.kids))
	for i, kid := range n.kids {
		members[i] = n.keys[i] + kid.line()
	}
	return n.open + n.scalar + strings.Join(members, ",") + closing[n.open]
}
