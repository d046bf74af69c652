package table

import (
	"context"
	"fmt"

	"github.com/xebec-serving/xebec/api"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

// Serve is the worker of a table: it reads the file, and answers the gateway that has started this process. key, which may be empty, is what
// the input must be called. other is that of [Table.Index].
func Serve(file, key string, other *string) error {
	t, err := Read(file)
	if err != nil {
		return err
	}
	var x *Index
	return xebec.Serve(func(_ context.Context, b *xebec.Batch) error { return x.answer(b) }, xebec.WithLoad(func(sig *api.Signature) error {
		if len(sig.Inputs) == 1 && key != "" && sig.Inputs[0].Name != key {
			return fmt.Errorf("the input is called %q, and --key names %q: expected the same column", sig.Inputs[0].Name, key)
		}
		x, err = t.Index(sig, other)
		return err
	}))
}

// answer sets the outputs of each query to its row. A query without a row is refused.
func (x *Index) answer(b *xebec.Batch) error {
	input := b.Signature().Inputs[0]
	for i := range b.Len() {
		row, found := x.rows[string(b.Bytes(input.Name, i))]
		if !found {
			if row = x.other; row < 0 {
				b.Refuse(i, "the table has no row with this "+input.Name)
				continue
			}
		}
		for _, c := range x.columns {
			if c.width == 0 {
				b.SetBytes(c.name, i, x.table.cell(row, c.column))
			} else {
				b.SetBytes(c.name, i, c.data[row*c.width:(row+1)*c.width])
			}
		}
	}
	return nil
}
