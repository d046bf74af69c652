package grpc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	tf "github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/api/xebecpb"
	"github.com/xebec-serving/xebec/gateway/grpc/tfwire"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestProtocolsAgree: the same random tensors come back bit for bit in every form of every protocol from a model that answers its inputs. TestDialectsAgree of
// package http has the same property for the dialects of HTTP.
func TestProtocolsAgree(t *testing.T) {
	every := []api.DType{api.Bool, api.Int8, api.Int16, api.Int32, api.Int64, api.Uint8, api.Uint16, api.Uint32, api.Uint64, api.Float32, api.Float64, api.String, api.Bytes}
	typed := tensorsOfAll(every)                                  // has typed contents in the Open Inference Protocol
	raw := tensorsOfAll(append(every, api.Float16, api.BFloat16)) // has not
	for name, sig := range map[string]api.Signature{"typed": typed, "raw": raw} {
		f := serve(t, sig, func(it *scheduler.Item) {
			it.Outputs = append(it.Outputs[:0], it.Inputs...) // with their dimensions
			it.Confidence = math.NaN()
			owner := it.Owner
			owner.Answered(it, api.OK)
			owner.Released(it, api.OK)
		})
		oip, serving := f.oip, tf.NewPredictionServiceClient(f.conn)
		rapid.Check(t, func(rt *rapid.T) {
			s := drawSaying(rt, sig)
			forms := map[string]func() (answer *saying, err error){
				"OIP raw": func() (*saying, error) {
					a, err := oip.ModelInfer(f.ctx(), s.infer(false))
					return s.inferred(a), err
				},
				"TF content": func() (*saying, error) {
					a, err := serving.Predict(f.ctx(), s.predict(true))
					return s.predicted(a), err
				},
				"TF values": func() (*saying, error) {
					a, err := serving.Predict(f.ctx(), s.predict(false))
					return s.predicted(a), err
				},
				"xebec.v1": func() (*saying, error) {
					a, err := f.fns.PredictBatch(f.ctx(), s.batch())
					return s.batched(a), err
				},
			}
			if name == "typed" {
				forms["OIP typed"] = func() (*saying, error) {
					a, err := oip.ModelInfer(f.ctx(), s.infer(true))
					if len(a.GetRawOutputContents()) > 0 {
						rt.Errorf("a typed request has a raw answer")
					}
					return s.inferred(a), err
				}
			}
			for form, ask := range forms {
				got, err := ask()
				if err != nil {
					rt.Errorf("%s: %v", form, err)
					continue
				}
				for q := range s.queries {
					for i, spec := range sig.Outputs {
						want, got := s.queries[q][i], got.queries[q][i]
						if !bytes.Equal(got.data, want.data) || !slices.EqualFunc(got.items, want.items, bytes.Equal) || !slices.Equal(got.dims, want.dims) {
							rt.Errorf("%s: query %d, %s: got %v, want %v", form, q, spec.String(), got, want)
						}
					}
				}
			}
		})
	}
}

// tensorsOfAll has tensors of each type: a scalar, a vector, and one whose first dimension is open.
func tensorsOfAll(dtypes []api.DType) (sig api.Signature) {
	for _, d := range dtypes {
		for rank, shape := range [][]int64{nil, {3}, {-1, 2}} {
			sig.Inputs = append(sig.Inputs, api.TensorSpec{Name: fmt.Sprintf("%s-%d", d, rank), DType: d, Shape: shape})
		}
	}
	sig.Outputs = sig.Inputs
	return sig
}

// said is a tensor of one query: the bytes of its numbers, or its items.
type said struct {
	data  []byte
	items [][]byte
	dims  []int64
}

// saying is what a request says, or an answer.
type saying struct {
	sig     api.Signature
	queries [][]said
}

func drawSaying(t *rapid.T, sig api.Signature) *saying {
	s := &saying{sig: sig}
	rows := rapid.Int64Range(1, 3).Draw(t, "rows") // of all queries, as one tensor needs it
	for range rapid.IntRange(1, 4).Draw(t, "queries") {
		var query []said
		for _, spec := range sig.Inputs {
			v := said{dims: []int64{}}
			for _, d := range spec.Shape {
				v.dims = append(v.dims, max(d, -d*rows))
			}
			for range api.Elements(v.dims) {
				switch spec.DType {
				case api.String:
					v.items = append(v.items, []byte(rapid.String().Draw(t, "text")))
				case api.Bytes:
					v.items = append(v.items, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes"))
				default:
					v.data = append(v.data, drawElement(t, spec.DType)...)
				}
			}
			query = append(query, v)
		}
		s.queries = append(s.queries, query)
	}
	return s
}

// drawElement draws the bytes of any value. A not-a-number is the quiet one: processors may change others.
func drawElement(t *rapid.T, d api.DType) []byte {
	bits := rapid.Uint64().Draw(t, "bits")
	switch {
	case d == api.Bool:
		bits &= 1
	case d == api.Float32 && math.IsNaN(float64(math.Float32frombits(uint32(bits)))):
		bits = uint64(math.Float32bits(float32(math.NaN())))
	case d == api.Float64 && math.IsNaN(math.Float64frombits(bits)):
		bits = math.Float64bits(math.NaN())
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:d.Size()]
}

// whole is input i of all queries as one tensor.
func (s *saying) whole(i int) (v said) {
	for _, q := range s.queries {
		v.data, v.items = append(v.data, q[i].data...), append(v.items, q[i].items...)
	}
	v.dims = append([]int64{int64(len(s.queries))}, s.queries[0][i].dims...)
	return v
}

// split divides tensors of all queries by query. Missing ones are empty.
func (s *saying) split(tensors map[string]said) *saying {
	answer := &saying{sig: s.sig}
	n := len(s.queries)
	for q := range n {
		var query []said
		for _, spec := range s.sig.Outputs {
			v := tensors[spec.Name]
			part := said{data: v.data[q*len(v.data)/n : (q+1)*len(v.data)/n], items: v.items[q*len(v.items)/n : (q+1)*len(v.items)/n]}
			if len(v.dims) > 0 {
				part.dims = v.dims[1:]
			}
			query = append(query, part)
		}
		answer.queries = append(answer.queries, query)
	}
	return answer
}

// elements calls yield with the bits of each number.
func elements(d api.DType, data []byte, yield func(bits uint64)) {
	for ; len(data) > 0; data = data[d.Size():] {
		var b [8]byte
		copy(b[:], data[:d.Size()])
		yield(binary.LittleEndian.Uint64(b[:]))
	}
}

// signed extends the sign of a number of a type.
func signed(d api.DType, bits uint64) int64 {
	shift := 64 - 8*d.Size()
	return int64(bits<<shift) >> shift
}

// packed has the low bytes of numbers. One that is not of the type is left out.
func packed[T any](d api.DType, values []T, bits func(T) uint64) (data []byte) {
	for _, v := range values {
		all := bits(v)
		low := binary.LittleEndian.AppendUint64(nil, all)[:d.Size()]
		elements(d, low, func(want uint64) {
			if d == api.Int8 || d == api.Int16 || d == api.Int32 {
				want = uint64(signed(d, want))
			}
			if all == want {
				data = append(data, low...)
			}
		})
	}
	return data
}

func whole[T int32 | int64 | uint32 | uint64](v T) uint64 { return uint64(v) }

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func single(f float32) uint64 { return uint64(math.Float32bits(f)) }

func (s *saying) infer(typed bool) *pb.ModelInferRequest {
	r := &pb.ModelInferRequest{ModelName: "m"}
	for i, spec := range s.sig.Inputs {
		v, in := s.whole(i), &pb.ModelInferRequest_InferInputTensor{Name: spec.Name, Datatype: spec.DType.OIP()}
		in.Shape = v.dims
		r.Inputs = append(r.Inputs, in)
		if !typed {
			raw := bytes.Clone(v.data)
			for _, item := range v.items {
				raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(item))), item...)
			}
			r.RawInputContents = append(r.RawInputContents, raw)
			continue
		}
		c := &pb.InferTensorContents{BytesContents: v.items}
		in.Contents = c
		elements(spec.DType, v.data, func(bits uint64) {
			switch spec.DType {
			case api.Bool:
				c.BoolContents = append(c.BoolContents, bits != 0)
			case api.Int8, api.Int16, api.Int32:
				c.IntContents = append(c.IntContents, int32(signed(spec.DType, bits)))
			case api.Int64:
				c.Int64Contents = append(c.Int64Contents, int64(bits))
			case api.Uint8, api.Uint16, api.Uint32:
				c.UintContents = append(c.UintContents, uint32(bits))
			case api.Uint64:
				c.Uint64Contents = append(c.Uint64Contents, bits)
			case api.Float32:
				c.Fp32Contents = append(c.Fp32Contents, math.Float32frombits(uint32(bits)))
			case api.Float64:
				c.Fp64Contents = append(c.Fp64Contents, math.Float64frombits(bits))
			}
		})
	}
	return r
}

func (s *saying) inferred(a *pb.ModelInferResponse) *saying {
	tensors := map[string]said{}
	for i, o := range a.GetOutputs() {
		d, v := s.sig.Outputs[i].DType, said{dims: o.Shape}
		if raw := a.RawOutputContents; len(raw) > 0 && d.Variable() {
			for rest := raw[i]; len(rest) >= 4; {
				n := 4 + int(binary.LittleEndian.Uint32(rest))
				v.items, rest = append(v.items, rest[4:n]), rest[n:]
			}
		} else if len(raw) > 0 {
			v.data = raw[i]
		} else {
			c := o.Contents
			v.items = c.GetBytesContents()
			v.data = slices.Concat(packed(d, c.GetBoolContents(), truth), packed(d, c.GetIntContents(), whole), packed(d, c.GetInt64Contents(), whole), packed(d, c.GetUintContents(), whole),
				packed(d, c.GetUint64Contents(), whole), packed(d, c.GetFp32Contents(), single), packed(d, c.GetFp64Contents(), math.Float64bits))
		}
		tensors[o.Name] = v
	}
	return s.split(tensors)
}

func (s *saying) predict(content bool) *tf.PredictRequest {
	r := &tf.PredictRequest{ModelSpec: &tf.ModelSpec{Name: "m"}, Inputs: map[string]*tf.TensorProto{}}
	for i, spec := range s.sig.Inputs {
		v, m := s.whole(i), &tf.TensorProto{Dtype: tfwire.DType(spec.DType), TensorShape: &tf.TensorShapeProto{}}
		r.Inputs[spec.Name] = m
		for _, d := range v.dims {
			m.TensorShape.Dim = append(m.TensorShape.Dim, &tf.TensorShapeProto_Dim{Size: d})
		}
		if content {
			m.TensorContent = bytes.Clone(v.data)
			for _, item := range v.items {
				m.TensorContent = binary.AppendUvarint(m.TensorContent, uint64(len(item)))
			}
			m.TensorContent = append(m.TensorContent, bytes.Join(v.items, nil)...)
			continue
		}
		m.StringVal = v.items
		elements(spec.DType, v.data, func(bits uint64) {
			switch spec.DType {
			case api.Bool:
				m.BoolVal = append(m.BoolVal, bits != 0)
			case api.Float16, api.BFloat16:
				m.HalfVal = append(m.HalfVal, int32(bits))
			case api.Float32:
				m.FloatVal = append(m.FloatVal, math.Float32frombits(uint32(bits)))
			case api.Float64:
				m.DoubleVal = append(m.DoubleVal, math.Float64frombits(bits))
			case api.Int64:
				m.Int64Val = append(m.Int64Val, int64(bits))
			case api.Uint32:
				m.Uint32Val = append(m.Uint32Val, uint32(bits))
			case api.Uint64:
				m.Uint64Val = append(m.Uint64Val, bits)
			case api.Uint8, api.Uint16:
				m.IntVal = append(m.IntVal, int32(bits))
			default:
				m.IntVal = append(m.IntVal, int32(signed(spec.DType, bits)))
			}
		})
	}
	return r
}

func (s *saying) predicted(a *tf.PredictResponse) *saying {
	tensors := map[string]said{}
	for i, spec := range s.sig.Outputs {
		m, d := a.GetOutputs()[spec.Name], s.sig.Outputs[i].DType
		v := said{items: m.GetStringVal()}
		for _, dim := range m.GetTensorShape().GetDim() {
			v.dims = append(v.dims, dim.Size)
		}
		v.data = slices.Concat(packed(d, m.GetBoolVal(), truth), packed(d, m.GetHalfVal(), whole), packed(d, m.GetFloatVal(), single), packed(d, m.GetDoubleVal(), math.Float64bits),
			packed(d, m.GetIntVal(), whole), packed(d, m.GetInt64Val(), whole), packed(d, m.GetUint32Val(), whole), packed(d, m.GetUint64Val(), whole))
		tensors[spec.Name] = v
	}
	return s.split(tensors)
}

func (s *saying) batch() *xebecpb.PredictBatchRequest {
	r := &xebecpb.PredictBatchRequest{Function: "f"}
	for _, q := range s.queries {
		query := &xebecpb.Query{}
		for i, spec := range s.sig.Inputs {
			query.Inputs = append(query.Inputs, &xebecpb.Tensor{Name: spec.Name, Shape: q[i].dims, Data: q[i].data, Items: q[i].items})
		}
		r.Queries = append(r.Queries, query)
	}
	return r
}

func (s *saying) batched(a *xebecpb.PredictBatchResponse) *saying {
	answer := &saying{sig: s.sig}
	for range s.queries {
		answer.queries = append(answer.queries, make([]said, len(s.sig.Outputs)))
	}
	for q, p := range a.GetPredictions() {
		for i, o := range p.Outputs {
			answer.queries[q][i] = said{data: o.Data, items: o.Items, dims: o.Shape}
		}
	}
	return answer
}
