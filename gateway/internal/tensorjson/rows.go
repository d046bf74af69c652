package tensorjson

import "github.com/xebec-serving/xebec/api"

// tabular reports whether queries can be rows: all inputs are scalars, and each one is a column.
func tabular(inputs []api.TensorSpec) bool {
	for i := range inputs {
		if len(inputs[i].Shape) != 0 {
			return false
		}
	}
	return len(inputs) > 0
}

// table rejects a member that holds rows if the inputs are not columns.
func (r *Reader) table(inputs []api.TensorSpec) error {
	for i := range inputs {
		if len(inputs[i].Shape) != 0 {
			return r.Errorf("expected a model whose inputs are all scalars, found the input %q (%s)", inputs[i].Name, inputs[i].String())
		}
	}
	if len(inputs) == 0 {
		return r.Errorf("expected a model with inputs, found none")
	}
	return nil
}

// columns is the order of the columns in a table: the c-th one is the input order[c].
type columns struct {
	order [MaxInputs]uint8
	known bool
}

// query reads the inputs of one query: an object of all inputs, or, if they are all scalars, an array in their order.
func (r *Reader) query(values []api.Value, specs []api.TensorSpec) error {
	if r.Peek() == '[' && tabular(specs) {
		return r.row(values, specs, nil)
	}
	return r.record(values, specs, "input")
}

// row reads an array of one scalar for each input. With cols, they are in the order of its columns.
func (r *Reader) row(values []api.Value, specs []api.TensorSpec, cols *columns) error {
	if err := r.Array(); err != nil {
		return err
	}
	for c := 0; ; c++ {
		ok, err := r.Element(c == 0)
		switch {
		case err != nil:
			return err
		case !ok && c == len(specs):
			return nil
		case !ok:
			r.pos--
			return r.Errorf("expected a row of %d values, found %d: %q is missing", len(specs), c, specs[cols.input(c)].Name)
		case c == len(specs):
			return r.Errorf("expected a row of %d values, found more", len(specs))
		}
		i := cols.input(c)
		r.Push(specs[i].Name)
		if err := r.Value(&values[i], &specs[i]); err != nil {
			return err
		}
		r.Pop()
	}
}

// input returns the input that the c-th value of a row belongs to. Without columns it is the c-th one.
func (cols *columns) input(c int) int {
	if cols == nil {
		return c
	}
	return int(cols.order[c])
}

// next returns storage for one more query.
func (q *Request) next(inputs []api.TensorSpec, sink Sink) ([]api.Value, error) {
	values, err := sink.Next()
	if err != nil {
		return nil, err
	}
	if len(values) != len(inputs) {
		return nil, api.Errorf(api.Internal, "storage for %d inputs: expected %d", len(values), len(inputs))
	}
	q.Queries++
	return values, nil
}

// frame reads the member dataframe_records or dataframe_split: one query for each row.
func (q *Request) frame(name string, inputs []api.TensorSpec, sink Sink) error {
	r := &q.r
	if err := q.onlyInput(name); err != nil {
		return err
	}
	r.Push(name)
	err := r.table(inputs)
	if err != nil {
		return err
	}
	q.Batch = true
	if name == "dataframe_records" {
		err = r.Elements(func(int) error {
			values, err := q.next(inputs, sink)
			if err != nil {
				return err
			}
			return r.record(values, inputs, "column")
		})
	} else {
		err = q.split(inputs, sink)
	}
	if err != nil {
		return err
	}
	if q.Queries == 0 {
		return r.Errorf("expected at least one row, found none")
	}
	r.Pop()
	return nil
}

// split reads {"columns": ["a", …], "data": [[…], …]}, in any order. Other members, as pandas' index, are skipped.
func (q *Request) split(inputs []api.TensorSpec, sink Sink) error {
	r := &q.r
	q.cols.known = false
	data, read := -1, false // where data begins that came before its columns; whether data has been read
	err := r.Members(func(name []byte) error {
		switch string(name) {
		case "columns":
			r.Push("columns")
			if q.cols.known {
				return r.Errorf("duplicate member")
			}
			if err := r.columns(&q.cols, inputs); err != nil {
				return err
			}
			r.Pop()
		case "data":
			if read || data >= 0 {
				return r.Errorf("duplicate member \"data\"")
			}
			if !q.cols.known {
				r.Peek()
				data = r.Pos()
				return r.Skip()
			}
			read = true
			return q.data(inputs, sink)
		default:
			return r.Skip()
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !q.cols.known:
		return r.Errorf("expected a member \"columns\"")
	case data >= 0:
		end := r.Pos()
		r.Seek(data)
		if err := q.data(inputs, sink); err != nil {
			return err
		}
		r.Seek(end)
	case !read:
		return r.Errorf("expected a member \"data\"")
	}
	return nil
}

// data reads the rows of dataframe_split.
func (q *Request) data(inputs []api.TensorSpec, sink Sink) error {
	r := &q.r
	r.Push("data")
	err := r.Elements(func(int) error {
		values, err := q.next(inputs, sink)
		if err != nil {
			return err
		}
		return r.row(values, inputs, &q.cols)
	})
	if err == nil {
		r.Pop()
	}
	return err
}

// columns reads the names of all columns, in any order, each one once.
func (r *Reader) columns(cols *columns, specs []api.TensorSpec) error {
	var seen Seen
	err := r.Elements(func(c int) error {
		name, err := r.String()
		if err != nil {
			return err
		}
		i := Find(specs, name, min(c, len(specs)))
		switch {
		case i < 0:
			return r.Errorf("unknown column %q: expected %s", clip(name), Names(specs))
		case seen.Has(i):
			return r.Errorf("duplicate column %q", specs[i].Name)
		}
		seen.Add(i)
		cols.order[c] = uint8(i) // c is below len(specs), because no column came twice
		return nil
	})
	if err != nil {
		return err
	}
	for i := range specs {
		if !seen.Has(i) {
			return r.Errorf("the column %q (%s) is missing", specs[i].Name, specs[i].String())
		}
	}
	cols.known = true
	return nil
}
