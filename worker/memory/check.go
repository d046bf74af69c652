package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// valueBytes is what a value counts in addition to its data.
const valueBytes = 16

func rowBytes(row []api.Value) (n int) {
	for i := range row {
		n += len(row[i].Data) + valueBytes
	}
	return n
}

// checkOutputs returns what is wrong with the outputs of a batch.
func checkOutputs(b *Batch) error {
	if len(b.Outputs) != len(b.Inputs) {
		return fmt.Errorf("the model returned outputs of %d queries: expected %d", len(b.Outputs), len(b.Inputs))
	}
	for i, row := range b.Outputs {
		if i < len(b.Refused) && b.Refused[i].Code != api.OK {
			continue
		}
		if err := checkRow(b.Signature, row); err != nil {
			return fmt.Errorf("query %d %w", i, err)
		}
	}
	return nil
}

// checkRow returns what is wrong with the outputs of one query.
func checkRow(sig api.Signature, row []api.Value) error {
	if len(row) != len(sig.Outputs) {
		return fmt.Errorf("has %d outputs: expected %d", len(row), len(sig.Outputs))
	}
	for s := range row {
		if err := checkValue(sig.Outputs[s], &row[s]); err != nil {
			return fmt.Errorf("has output %s: %w", sig.Outputs[s].Name, err)
		}
	}
	return nil
}

// maxCallerText bounds a refusal for the caller, as in package local.
const maxCallerText = 1 << 10

// refuse ends a query as the model says, and returns what it says about a failure, for operators.
func refuse(q *api.Query, why Refusal) (failed string) {
	text := why.Text
	if q.Status = why.Code; why.Code == api.InvalidInput {
		text = text[:min(len(text), maxCallerText)]
	}
	q.Detail = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
	if why.Code == api.ModelError {
		failed = q.Detail
	}
	return failed
}

// checkValue checks a value against its declaration.
func checkValue(spec api.TensorSpec, v *api.Value) error {
	if spec.Fixed() && len(v.Dims) == 0 {
		if len(v.Data) != spec.ItemBytes() {
			return fmt.Errorf("%d bytes: expected %d for %s", len(v.Data), spec.ItemBytes(), spec)
		}
		return nil
	}
	if len(v.Dims) != len(spec.Shape) {
		return fmt.Errorf("dimensions %v: expected %d for %s", v.Dims, len(spec.Shape), spec)
	}
	for j, d := range spec.Shape {
		if d >= 0 && v.Dims[j] != d {
			return fmt.Errorf("dimensions %v: expected %s", v.Dims, spec)
		}
	}
	n := api.Elements(v.Dims)
	switch {
	case n < 0:
		return fmt.Errorf("dimensions %v: expected none below 0 and at most %d elements", v.Dims, api.MaxItemBytes)
	case !spec.DType.Variable() && int64(len(v.Data)) != n*int64(spec.DType.Size()):
		return fmt.Errorf("%d bytes: expected %d elements of %s", len(v.Data), n, spec.DType)
	case spec.DType.Variable() && len(spec.Shape) > 0:
		return checkElements(v.Data, n, spec.DType == api.String)
	case spec.DType == api.String && !utf8.Valid(v.Data):
		return errNotText
	}
	return nil
}

var errNotText = errors.New("not valid UTF-8, which a string is")

// checkElements checks that data are n texts, each a u32 length and its bytes, in UTF-8 if they are strings.
func checkElements(data []byte, n int64, strings bool) error {
	for i := range n {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.LittleEndian.Uint32(data)) {
			return fmt.Errorf("text %d of %d extends beyond the data", i, n)
		}
		end := 4 + binary.LittleEndian.Uint32(data)
		if strings && !utf8.Valid(data[4:end]) {
			return errNotText
		}
		data = data[end:]
	}
	if len(data) > 0 {
		return fmt.Errorf("%d bytes follow the last of %d texts", len(data), n)
	}
	return nil
}
