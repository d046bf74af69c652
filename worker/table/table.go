package table

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

const (
	// MaxBytes bounds the file.
	MaxBytes = 1 << 30 //xebec:limit size of a table
	// MaxRows bounds the rows below the line that names the columns.
	MaxRows = 20_000_000 //xebec:limit rows of a table
	// maxColumns is the key and the outputs that a signature can have.
	maxColumns = 1 + api.MaxTensors
)

// Table is a file that has been read: text in rows and columns.
type Table struct {
	file    string
	columns []string
	rows    int
	lines   []uint32 // the line of the file on which each row begins
	text    []byte   // all cells, row by row
	ends    []uint32 // where each cell ends in text
}

// Read reads a CSV file.
func Read(name string) (*Table, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is no regular file: expected a CSV file", name)
	case info.Size() > MaxBytes:
		return nil, fmt.Errorf("%s: has %d bytes: expected at most %d", name, info.Size(), MaxBytes)
	}
	return read(name, io.LimitReader(f, MaxBytes), MaxRows)
}

func read(name string, from io.Reader, maxRows int) (*Table, error) {
	t := &Table{file: name}
	r := csv.NewReader(from)
	r.ReuseRecord = true
	header, err := r.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: is empty: expected a first line that names the columns", name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(header) < 2 || len(header) > maxColumns:
		return nil, fmt.Errorf("%s: has %d columns: expected 2 to %d, separated by commas", name, len(header), maxColumns)
	}
	t.columns = slices.Clone(header)
	t.columns[0] = string(bytes.TrimPrefix([]byte(t.columns[0]), []byte("\ufeff"))) // spreadsheets write a byte order mark
	for i, column := range t.columns {
		if slices.Contains(t.columns[:i], column) {
			return nil, fmt.Errorf("%s: two columns are called %q: expected names that differ", name, column)
		}
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if t.rows == maxRows {
			return nil, fmt.Errorf("%s: has more than %d rows", name, maxRows)
		}
		line, _ := r.FieldPos(0)
		for i, cell := range record {
			if !utf8.ValidString(cell) {
				return nil, fmt.Errorf("%s: line %d, column %q: is not UTF-8", name, line, t.columns[i])
			}
			t.text = append(t.text, cell...)
			t.ends = append(t.ends, uint32(len(t.text)))
		}
		t.lines = append(t.lines, uint32(line))
		t.rows++
	}
	if t.rows == 0 {
		return nil, fmt.Errorf("%s: has no rows below the line that names the columns", name)
	}
	return t, nil
}

func (t *Table) cell(row, column int) []byte {
	k := row*len(t.columns) + column
	begin := uint32(0)
	if k > 0 {
		begin = t.ends[k-1]
	}
	return t.text[begin:t.ends[k]]
}

func (t *Table) column(name string) (int, error) {
	i := slices.Index(t.columns, name)
	if i < 0 {
		return 0, fmt.Errorf("%s: has no column %q: expected one of %q", t.file, name, t.columns)
	}
	return i, nil
}

// Infer proposes a signature with key, or the first column if key is empty, as its input. A column of whole numbers
// is int64, another one of numbers float64, one of true and false bool, any other string.
func (t *Table) Infer(key string) (*api.Signature, error) {
	if key == "" {
		key = t.columns[0]
	}
	in, err := t.column(key)
	if err != nil {
		return nil, err
	}
	sig := &api.Signature{Inputs: []api.TensorSpec{{Name: key, DType: t.infer(in, api.Int64), Shape: []int64{}}}}
	for i, name := range t.columns {
		if i != in {
			sig.Outputs = append(sig.Outputs, api.TensorSpec{Name: name, DType: t.infer(i, api.Int64, api.Float64, api.Bool), Shape: []int64{}})
		}
	}
	return sig, nil
}

// infer returns the first of some types that all cells of a column are of, or else string.
func (t *Table) infer(column int, types ...api.DType) api.DType {
	var scratch []byte
	for _, d := range types {
		fits := true
		for row := 0; row < t.rows && fits; row++ {
			cell := t.cell(row, column)
			var err error
			scratch, err = encode(scratch[:0], d, cell)
			fits = err == nil && !isCode(cell)
		}
		if fits {
			return d
		}
	}
	return api.String
}

// isCode reports whether a cell is digits that would not be the same as a number: 007.
func isCode(cell []byte) bool {
	return len(cell) > 1 && (cell[0] == '+' || cell[0] == '0' && cell[1] >= '0' && cell[1] <= '9')
}

// Index is a table with a signature.
type Index struct {
	table   *Table
	rows    map[string]int // by key, as queries have it
	columns []cells        // for each output
	other   int            // the row of keys that have none, or -1
}

// cells are a column's values, as answers have them.
type cells struct {
	name   string
	column int
	width  int    // 0: text
	data   []byte // width bytes for each row
}

// Index reads the cells as sig says, whose input names the key column. With other, which may be nil, the row of that key answers for
// keys that have none.
func (t *Table) Index(sig *api.Signature, other *string) (*Index, error) {
	if len(sig.Inputs) != 1 {
		return nil, fmt.Errorf("the model has %d inputs: expected one, with the name of the key column", len(sig.Inputs))
	}
	in := sig.Inputs[0]
	key, err := t.column(in.Name)
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if in.DType != api.String && in.DType != api.Int64 || len(in.Shape) > 0 {
		return nil, fmt.Errorf("input %q is %v: expected string[] or int64[]", in.Name, in)
	}
	x := &Index{table: t, rows: make(map[string]int, t.rows), other: -1}
	var scratch []byte
	for row := range t.rows {
		if scratch, err = encode(scratch[:0], in.DType, t.cell(row, key)); err != nil {
			return nil, t.at(row, key, err)
		}
		if first, there := x.rows[string(scratch)]; there {
			return nil, t.at(row, key, fmt.Errorf("the key %.100q is on line %d already: expected each key once", t.cell(row, key), t.lines[first]))
		}
		x.rows[string(scratch)] = row
	}
	if other != nil {
		row, there := -1, false
		if scratch, err = encode(scratch[:0], in.DType, []byte(*other)); err == nil {
			row, there = x.rows[string(scratch)]
		}
		if !there {
			return nil, fmt.Errorf("%s: has no row with the key %.100q, which --default names", t.file, *other)
		}
		x.other = row
	}
	for _, out := range sig.Outputs {
		column, err := t.column(out.Name)
		if err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
		c, err := t.values(column, out)
		if err != nil {
			return nil, err
		}
		x.columns = append(x.columns, c)
	}
	return x, nil
}

func (t *Table) values(column int, out api.TensorSpec) (cells, error) {
	c := cells{name: out.Name, column: column}
	switch out.DType {
	case api.String:
	case api.Bool, api.Int32, api.Int64, api.Float32, api.Float64:
		c.width = out.DType.Size()
		c.data = make([]byte, 0, c.width*t.rows)
	default:
		c.width = -1
	}
	if c.width < 0 || len(out.Shape) > 0 {
		return c, fmt.Errorf("output %q is %v: expected string[], bool[], int32[], int64[], float32[] or float64[]", out.Name, out)
	}
	for row := 0; row < t.rows && c.width > 0; row++ {
		var err error
		if c.data, err = encode(c.data, out.DType, t.cell(row, column)); err != nil {
			return c, t.at(row, column, err)
		}
	}
	return c, nil
}

func (t *Table) at(row, column int, err error) error {
	return fmt.Errorf("%s: line %d, column %q: %w", t.file, t.lines[row], t.columns[column], err)
}

// encode appends a cell as a value of a type.
func encode(to []byte, d api.DType, cell []byte) ([]byte, error) {
	switch text := string(cell); d {
	case api.String:
		return append(to, cell...), nil
	case api.Bool:
		switch text {
		case "true", "True", "TRUE":
			return append(to, 1), nil
		case "false", "False", "FALSE":
			return append(to, 0), nil
		}
	case api.Int32, api.Int64:
		if n, err := strconv.ParseInt(text, 10, 8*d.Size()); err == nil {
			return appendBits(to, uint64(n), d.Size()), nil
		}
	case api.Float32, api.Float64:
		x, err := strconv.ParseFloat(text, 8*d.Size())
		switch {
		case err != nil || math.IsInf(x, 0) || math.IsNaN(x):
		case d == api.Float32:
			return appendBits(to, uint64(math.Float32bits(float32(x))), 4), nil
		default:
			return appendBits(to, math.Float64bits(x), 8), nil
		}
	}
	return to, fmt.Errorf("%.100q: expected a value of %v", cell, d)
}

func appendBits(to []byte, bits uint64, size int) []byte {
	for i := range size {
		to = append(to, byte(bits>>(8*i)))
	}
	return to
}
