package dialect

import (
	"math/bits"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// rendering is what a Call keeps for its answer.
type rendering struct {
	json     tensorjson.Reader
	defaults []api.Value // the function's default output, once it was needed
	text     []byte
}

// Outputs returns the outputs of query i: those of its prediction, or else the function's default. ok is false if the query has neither. Call it in
// Settled.
func (c *Call) Outputs(i int) (outputs []api.Value, ok bool) {
	q := c.Query(i)
	if q.Code == api.OK {
		return q.Outputs, true
	}
	if !c.Defaults(q) {
		return nil, false
	}
	if len(c.rendering.defaults) == 0 && !c.readDefault() {
		return nil, false
	}
	return c.rendering.defaults, true
}

// Defaults reports whether a query without a prediction gets the function's default. A caller whose input is wrong is told so.
func (c *Call) Defaults(q *query.Query) bool {
	fn := c.Function()
	return q.Code != api.OK && q.Code != api.InvalidInput && fn != nil && fn.Default != nil
}

// Failed returns the first query that has no outputs, not even by default; -1: all have some.
func (c *Call) Failed() int {
	for i := range c.Len() {
		if _, ok := c.Outputs(i); !ok {
			return i
		}
	}
	return -1
}

// readDefault reads the function's default output, which was judged when the function was declared.
func (c *Call) readDefault() bool {
	specs := c.Model().Signature.Outputs
	values := make([]api.Value, len(specs))
	r := &c.rendering.json
	r.Reset(c.Function().Default)
	var err error
	if len(specs) == 1 {
		err = r.Value(&values[0], &specs[0])
	} else {
		err = r.Members(func(name []byte) error {
			if i := tensorjson.Find(specs, name, 0); i >= 0 {
				return r.Value(&values[i], &specs[i])
			}
			return r.Skip()
		})
	}
	if err != nil {
		return false
	}
	c.rendering.defaults = values
	return true
}

// FactWriter takes the facts of an answer, in whatever form the dialect gives them. Texts are valid during the call.
type FactWriter interface {
	Uint(name string, v uint64)
	Bool(name string, v bool)
	Float(name string, v float64)
	Text(name string, v []byte)
}

// Facts writes what the answer of a function says beside its outputs. Answers of models have none. Lists are texts, because the protocols have
// scalars only.
//
//	query_id             of the first query, for feedback; that of query i is query_id + i
//	default              whether an output is the function's default
//	defaults             with several queries: the indexes of those that got the default, separated by commas; absent if none did
//	default_explanation  why the first of them did; absent if none did
//	confidence           of the answer; with several queries the lowest one
//	confidences          with several queries that differ in it: of each, separated by commas
//	models               name@version of those that have answered, separated by commas
//	late, failed, dropped  those that have not; absent if there are none
//
// Call it in Settled, when every query has outputs.
func (c *Call) Facts(w FactWriter) {
	fn, n := c.Function(), c.Len()
	if fn == nil || n == 0 {
		return
	}
	first := c.Query(0)
	w.Uint("query_id", first.ID)
	lowest, highest, defaults := c.confidence(first), c.confidence(first), 0
	parts := first.Parts()
	var explained *query.Query
	c.rendering.text = c.rendering.text[:0]
	for i := range n {
		q := c.Query(i)
		f := c.confidence(q)
		lowest, highest = min(lowest, f), max(highest, f)
		if q.Code != api.OK {
			if defaults++; defaults == 1 {
				explained = q
			} else {
				c.rendering.text = append(c.rendering.text, ',')
			}
			c.rendering.text = strconv.AppendInt(c.rendering.text, int64(i), 10)
		}
		if i > 0 {
			p := q.Parts()
			parts.Answered, parts.Late, parts.Failed, parts.Dropped = parts.Answered|p.Answered, parts.Late|p.Late, parts.Failed|p.Failed, parts.Dropped|p.Dropped
		}
	}
	w.Bool("default", defaults > 0)
	if defaults > 0 {
		if n > 1 {
			w.Text("defaults", c.rendering.text)
		}
		c.rendering.text = c.AppendExplanation(c.rendering.text[:0], explained)
		w.Text("default_explanation", c.rendering.text)
	}
	w.Float("confidence", lowest)
	if lowest != highest {
		text := c.rendering.text[:0]
		for i := range n {
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendFloat(text, c.confidence(c.Query(i)), 'g', -1, 64)
		}
		c.rendering.text = text
		w.Text("confidences", text)
	}
	w.Text("models", c.candidates(uint64(parts.Answered)))
	for _, rest := range [...]struct {
		name string
		set  uint64
	}{{"late", uint64(parts.Late)}, {"failed", uint64(parts.Failed)}, {"dropped", uint64(parts.Dropped)}} {
		if rest.set != 0 {
			w.Text(rest.name, c.candidates(rest.set))
		}
	}
}

// AppendExplanation says why a query has the default.
func (c *Call) AppendExplanation(dst []byte, q *query.Query) []byte {
	if q.Code != api.LowConfidence {
		return append(dst, q.Code.Reason()...)
	}
	dst = append(dst, "confidence "...)
	dst = strconv.AppendFloat(dst, q.Confidence, 'f', 2, 64)
	dst = append(dst, " below "...)
	return strconv.AppendFloat(dst, c.MinConfidence(), 'f', 2, 64)
}

// confidence is 1 if none was computed: one model agrees with itself.
func (c *Call) confidence(q *query.Query) float64 {
	switch {
	case q.Code != api.OK && q.Code != api.LowConfidence:
		return 0
	case q.Confidence >= 0 && q.Confidence <= 1:
		return q.Confidence
	}
	return 1
}

// candidates writes the name@version of each candidate of a set.
func (c *Call) candidates(set uint64) []byte {
	out := c.rendering.text[:0]
	for ; set != 0; set &= set - 1 {
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = append(out, c.Candidate(bits.TrailingZeros64(set)).Ref()...)
	}
	c.rendering.text = out
	return out
}

// AppendFacts appends the facts of an answer as members of a JSON object, each with a comma before it but the first.
func (c *Call) AppendFacts(dst []byte) []byte {
	w := jsonFacts{dst: dst, begin: len(dst)}
	c.Facts(&w)
	return w.dst
}

type jsonFacts struct {
	dst   []byte
	begin int
}

func (w *jsonFacts) name(name string) {
	if len(w.dst) > w.begin {
		w.dst = append(w.dst, ',')
	}
	w.dst = append(append(append(w.dst, '"'), name...), `":`...) // names of facts need no escapes
}

func (w *jsonFacts) Uint(name string, v uint64) {
	w.name(name)
	w.dst = strconv.AppendUint(w.dst, v, 10)
}

func (w *jsonFacts) Bool(name string, v bool) {
	w.name(name)
	w.dst = strconv.AppendBool(w.dst, v)
}

func (w *jsonFacts) Float(name string, v float64) {
	w.name(name)
	w.dst = appendFloat(w.dst, v)
}

// appendFloat appends a confidence with the fewest digits that read back. That of one model is always 1.
func appendFloat(dst []byte, v float64) []byte {
	if v == 1 {
		return append(dst, '1')
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

func (w *jsonFacts) Text(name string, v []byte) {
	w.name(name)
	w.dst = tensorjson.AppendString(w.dst, v)
}
