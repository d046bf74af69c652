package dialect

import "strconv"

// FactFields appends the facts of the answer ([Call.Facts]) to its header fields, for protocols whose bodies have no place for them: Xebec-Query-Id,
// Xebec-Default, Xebec-Confidence, Xebec-Models and so on. Call it in Settled, when every query has outputs.
func (c *Call) FactFields() {
	c.fields.call = c
	c.fields.notes = c.fields.notes[:0]
	c.Facts(&c.fields)
}

// factFields writes facts as header fields.
type factFields struct {
	call  *Call
	notes []byte // memory of the values
}

// fieldNames are the fields of facts.
var fieldNames = map[string]string{
	"query_id": "Xebec-Query-Id", "default": "Xebec-Default", "defaults": "Xebec-Defaults", "default_explanation": "Xebec-Default-Explanation",
	"confidence": "Xebec-Confidence", "confidences": "Xebec-Confidences", "models": "Xebec-Models", "late": "Xebec-Late", "failed": "Xebec-Failed", "dropped": "Xebec-Dropped",
}

// end makes a field of the notes from at on. A later field may move the notes; the earlier ones then keep the old memory.
func (f *factFields) end(name string, at int) {
	a := &f.call.Answer
	a.Fields = append(a.Fields, Field{Name: fieldNames[name], Value: f.notes[at:len(f.notes):len(f.notes)]})
}

func (f *factFields) Uint(name string, v uint64) {
	at := len(f.notes)
	f.notes = strconv.AppendUint(f.notes, v, 10)
	f.end(name, at)
}

func (f *factFields) Bool(name string, v bool) {
	at := len(f.notes)
	f.notes = strconv.AppendBool(f.notes, v)
	f.end(name, at)
}

func (f *factFields) Float(name string, v float64) {
	at := len(f.notes)
	f.notes = strconv.AppendFloat(f.notes, v, 'g', -1, 64)
	f.end(name, at)
}

func (f *factFields) Text(name string, v []byte) {
	at := len(f.notes)
	f.notes = append(f.notes, v...)
	f.end(name, at)
}
