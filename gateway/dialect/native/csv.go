package native

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

var csvType = []byte("text/csv")

// byteOrderMark is what some spreadsheets begin a file of UTF-8 with.
var byteOrderMark = []byte("\xef\xbb\xbf")

// readCSV reads a body of type text/csv (RFC 4180): a query for each record, for models whose inputs are all scalars. The first
// record names the columns, in any order, unless the type has the parameter header=absent: then they are in the order of the inputs.
// It is as bounded as any other batch: by the body, and by the number of queries of a request.
func (c *call) readCSV(contentType, body []byte) error {
	p, specs := &c.parsed, c.Model().Signature.Inputs
	p.Clear()
	p.Batch = true
	if len(specs) > tensorjson.MaxInputs {
		return api.Errorf(api.Internal, "the signature declares %d inputs: expected at most %d", len(specs), tensorjson.MaxInputs)
	}
	for i := range specs {
		if len(specs[i].Shape) > 0 {
			return wrongCSV("expected a model whose inputs are all scalars, found the input %q (%s)", specs[i].Name, specs[i].String())
		}
	}
	named, err := hasHeader(contentType)
	if err != nil {
		return err
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(body, byteOrderMark)))
	r.ReuseRecord, r.FieldsPerRecord = true, -1
	var order [tensorjson.MaxInputs]uint8
	for i := range specs {
		order[i] = uint8(i)
	}
	if named {
		record, err := r.Read()
		if err != nil {
			return csvError(err)
		}
		if err := csvColumns(&order, record, specs); err != nil {
			return err
		}
	}
	for rows := 0; ; rows++ {
		record, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && rows == 0:
			return wrongCSV("expected at least one row, found none")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return csvError(err)
		case len(record) != len(specs):
			line, _ := r.FieldPos(0)
			if why := otherSeparator(record, len(specs)); why != "" {
				return wrongCSV("line %d: %s", line, why)
			}
			return wrongCSV("line %d: expected %d values, found %d", line, len(specs), len(record))
		}
		values, err := c.Next()
		if err != nil {
			return err
		}
		for column, text := range record {
			i := order[column]
			if err := c.csvValue(&values[i], &specs[i], text); err != nil {
				line, at := r.FieldPos(column)
				return wrongCSV("line %d, byte %d, column %q: %w", line, at, specs[i].Name, err)
			}
		}
	}
}

// hasHeader reports whether a body of this Content-Type begins with the names of its columns (RFC 4180, section 3).
func hasHeader(contentType []byte) (bool, error) {
	_, params, _ := bytes.Cut(contentType, []byte(";"))
	header := true
	for len(params) > 0 {
		name, value, rest, ok := parameter(params)
		if !ok {
			return false, wrongCSV("the Content-Type has malformed parameters")
		}
		params = rest
		switch {
		case bytes.EqualFold(name, []byte("header")) && bytes.EqualFold(value, []byte("absent")):
			header = false
		case bytes.EqualFold(name, []byte("header")) && !bytes.EqualFold(value, []byte("present")):
			return false, wrongCSV("the Content-Type has header=%s: expected present or absent", clip(value))
		case bytes.EqualFold(name, []byte("charset")) && !bytes.EqualFold(value, []byte("utf-8")) && !bytes.EqualFold(value, []byte("us-ascii")):
			return false, wrongCSV("the Content-Type has charset=%s: expected utf-8", clip(value))
		}
	}
	return header, nil
}

// csvColumns reads the names of all columns, each one once.
func csvColumns(order *[tensorjson.MaxInputs]uint8, names []string, specs []api.TensorSpec) error {
	if why := otherSeparator(names, len(specs)); why != "" {
		return wrongCSV("line 1: %s", why)
	}
	var seen tensorjson.Seen
	for column, name := range names {
		i := tensorjson.Find(specs, []byte(name), min(column, len(specs)))
		switch {
		case i < 0 && column == 0 && name == "" && len(names) > 1:
			return wrongCSV("line 1: the first column has no name, as the index that pandas writes: use df.to_csv(index=False)")
		case i < 0:
			return wrongCSV("line 1: unknown column %q: expected %s", clip([]byte(name)), tensorjson.Names(specs))
		case seen.Has(i):
			return wrongCSV("line 1: the column %q is there twice", name)
		}
		seen.Add(i)
		order[column] = uint8(i) // column is below len(specs), because none came twice
	}
	for i := range specs {
		if !seen.Has(i) {
			return wrongCSV("line 1: the column %q (%s) is missing", specs[i].Name, specs[i].String())
		}
	}
	return nil
}

// otherSeparator says what is wrong with a line whose columns are separated by something else than commas; empty: nothing is.
func otherSeparator(record []string, want int) string {
	if len(record) != 1 || want == 1 {
		return ""
	}
	for _, s := range []struct{ mark, name string }{{";", "semicolons"}, {"\t", "tabs"}, {"|", "bars"}} {
		if strings.Count(record[0], s.mark) == want-1 {
			return fmt.Sprintf("it has 1 column where %d were expected: the separator is a comma, and the line has %s", want, s.name)
		}
	}
	return ""
}

// csvValue reads one field. In columns of floating point an empty field is NaN, as are the words that programs write for it.
func (c *call) csvValue(v *api.Value, spec *api.TensorSpec, text string) error {
	v.Dims = v.Dims[:0]
	switch {
	case spec.DType == api.String && !utf8.ValidString(text):
		return errors.New("the text is not valid UTF-8")
	case spec.DType.Variable():
		v.Data = append(v.Data[:0], text...)
		return nil
	case text == "" && !spec.DType.Float():
		return errors.New("the field is empty: only columns of floating point have missing values")
	}
	token := text
	switch word := strings.ToLower(text); {
	case spec.DType == api.Bool && (word == "true" || word == "false"):
		token = word
	case spec.DType.Float() && (word == "" || word == "nan" || word == "na" || word == "null"):
		token = "null"
	case spec.DType.Float() && (word == "inf" || word == "infinity"):
		token = "Infinity"
	case spec.DType.Float() && (word == "-inf" || word == "-infinity"):
		token = "-Infinity"
	}
	r := &c.reader
	r.Reset([]byte(token))
	r.NonFinite = true
	defer func() { r.NonFinite = false }()
	err := r.Value(v, spec)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return errors.New("expected " + spec.DType.String() + ", found " + quoted([]byte(text)))
	}
	return nil
}

func csvError(err error) error {
	var e *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return wrongCSV("the body is empty: expected a line with the names of the columns, or a Content-Type with header=absent")
	case errors.As(err, &e):
		return wrongCSV("line %d, byte %d: %w", e.Line, e.Column, e.Err)
	}
	return wrongCSV("%w", err)
}

func wrongCSV(format string, args ...any) error {
	return api.Errorf(api.InvalidArgument, "text/csv: "+format, args...)
}
