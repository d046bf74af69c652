package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// Limits of a signature, beside [api.MaxSignatureBytes].
const (
	MaxTensors         = api.MaxTensors // of inputs, and of outputs
	MaxTensorsV1       = 64             // in version 1
	MaxTensorNameBytes = 256            // when sending; when reading, only the payload bounds it
)

// CheckSignature checks that a signature can be sent: counts, ranks, names, shapes and its size are within the protocol's limits.
// Declared models are checked before they are served.
func CheckSignature(sig *api.Signature) error {
	for _, side := range []struct {
		what  string
		specs []api.TensorSpec
	}{{"inputs", sig.Inputs}, {"outputs", sig.Outputs}} {
		if len(side.specs) > MaxTensors {
			return fmt.Errorf("%d %s: expected at most %d", len(side.specs), side.what, MaxTensors)
		}
		for i := range side.specs {
			if err := checkTensor(&side.specs[i]); err != nil {
				return fmt.Errorf("%s[%d]: %w", side.what, i, err)
			}
			if n := len(side.specs[i].Name); n > MaxTensorNameBytes {
				return fmt.Errorf("%s[%d]: the name has %d bytes, expected at most %d", side.what, i, n, MaxTensorNameBytes)
			}
		}
	}
	if n := sig.EncodedBytes(); n > api.MaxSignatureBytes {
		return fmt.Errorf("the inputs and outputs take %d bytes: expected at most %d", n, api.MaxSignatureBytes)
	}
	return nil
}

// checkTensor refuses tensors that no schema can have, above all shapes whose size overflows.
func checkTensor(t *api.TensorSpec) error {
	if !utf8.ValidString(t.Name) {
		return fmt.Errorf("the name %q is not UTF-8", t.Name)
	}
	if !t.DType.Valid() {
		return fmt.Errorf("unknown dtype %d", uint8(t.DType))
	}
	if len(t.Shape) > api.MaxRank {
		return fmt.Errorf("rank %d, expected at most %d", len(t.Shape), api.MaxRank)
	}
	// Unknown dimensions count as 1: the others must be possible in a batch of one.
	elements, empty := int64(1), false
	for _, d := range t.Shape {
		switch {
		case d < -1:
			return fmt.Errorf("a dimension is %d, expected at least -1", d)
		case d > api.MaxItemBytes:
			return fmt.Errorf("a dimension is %d, expected at most %d", d, api.MaxItemBytes)
		case d == 0:
			empty = true
		case d > 0:
			if elements > api.MaxItemBytes/d {
				return fmt.Errorf("shape %s has more elements than %d bytes hold", api.ShapeString(t.Shape), api.MaxItemBytes)
			}
			elements *= d
		}
	}
	if size := max(1, int64(t.DType.Size())); !empty && elements > api.MaxItemBytes/size {
		return fmt.Errorf("%s%s has more than %d bytes", t.DType, api.ShapeString(t.Shape), api.MaxItemBytes)
	}
	return nil
}

func appendSignature(dst []byte, sig *api.Signature) []byte {
	if err := CheckSignature(sig); err != nil {
		panic("wire: a signature that CheckSignature refuses: " + err.Error())
	}
	return appendTensors(appendTensors(dst, sig.Inputs), sig.Outputs)
}

func appendTensors(dst []byte, specs []api.TensorSpec) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(specs)))
	for i := range specs {
		t := &specs[i]
		dst = appendText(dst, t.Name)
		dst = append(dst, byte(t.DType), byte(len(t.Shape)))
		for _, d := range t.Shape {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(d))
		}
	}
	return dst
}

// signature returns nil after an error.
func (d *decoder) signature() *api.Signature {
	sig := &api.Signature{Inputs: d.tensors("inputs"), Outputs: d.tensors("outputs")}
	if d.err != nil {
		return nil
	}
	return sig
}

func (d *decoder) tensors(what string) []api.TensorSpec {
	n := int(d.u16())
	if n > MaxTensors {
		d.fail("%d %s, expected at most %d", n, what, MaxTensors)
	}
	var specs []api.TensorSpec
	for i := 0; i < n && d.err == nil; i++ {
		t := api.TensorSpec{Name: d.str(), DType: api.DType(d.u8())}
		rank := int(d.u8())
		if rank > api.MaxRank {
			d.fail("%s[%d]: rank %d, expected at most %d", what, i, rank, api.MaxRank)
			return nil
		}
		for j := 0; j < rank; j++ {
			t.Shape = append(t.Shape, int64(d.u64()))
		}
		if d.err != nil {
			return nil
		}
		if err := checkTensor(&t); err != nil {
			d.fail("%s[%d]: %w", what, i, err)
			return nil
		}
		specs = append(specs, t)
	}
	return specs
}
