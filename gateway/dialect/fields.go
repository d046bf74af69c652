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

// fieldName is the field of a fact. It is asked for every fact of every answer: a switch costs less than a map.
func fieldName(fact string) string {
	switch fact {
	case "query_id":
		return "Xebec-Query-Id"
	case "default":
		return "Xebec-Default"
	case "defaults":
		return "Xebec-Defaults"
	case "default_explanation":
		return "Xebec-Default-Explanation"
	case "confidence":
		return "Xebec-Confidence"
	case "confidences":
		return "Xebec-Confidences"
	case "models":
		return "Xebec-Models"
	case "late":
		return "Xebec-Late"
	case "failed":
		return "Xebec-Failed"
	case "dropped":
		return "Xebec-Dropped"
	}
	return "Xebec-" + fact
}

// end makes a field of the notes from at on. A later field may move the notes; the earlier ones then keep the old memory.
func (f *factFields) end(name string, at int) {
	a := &f.call.Answer
	a.Fields = append(a.Fields, Field{Name: fieldName(name), Value: f.notes[at:len(f.notes):len(f.notes)]})
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
	f.notes = appendFloat(f.notes, v)
	f.end(name, at)
}

func (f *factFields) Text(name string, v []byte) {
	at := len(f.notes)
	f.notes = append(f.notes, v...)
	f.end(name, at)
}
