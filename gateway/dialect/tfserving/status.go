package tfserving

import (
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// dtypes are TensorFlow's names of our types.
var dtypes = map[api.DType]string{
	api.Bool: "DT_BOOL", api.Uint8: "DT_UINT8", api.Uint16: "DT_UINT16", api.Uint32: "DT_UINT32", api.Uint64: "DT_UINT64",
	api.Int8: "DT_INT8", api.Int16: "DT_INT16", api.Int32: "DT_INT32", api.Int64: "DT_INT64",
	api.Float16: "DT_HALF", api.BFloat16: "DT_BFLOAT16", api.Float32: "DT_FLOAT", api.Float64: "DT_DOUBLE", api.Bytes: "DT_STRING", api.String: "DT_STRING",
}

// stateOf is the state of a version that queries may address, in TensorFlow Serving's words.
func stateOf(m *query.Model) string {
	if m.Available() {
		return "AVAILABLE"
	}
	return "LOADING"
}

// status serves GET of one version or label.
func (s *service) status(x dialect.Exchange) {
	name, version, _ := address(x)
	n, err := s.path.Named(name, version)
	if err != nil {
		dialect.Fail(x, Dialect{}, NotFound(err, name, version))
		return
	}
	var a dialect.Answer
	a.Reset(200)
	a.Body = append(a.Body, `{"model_version_status":[`...)
	a.Body = append(appendStatus(a.Body, n.Model.ID.Version, stateOf(n.Model)), "]}"...)
	x.Answer(&a)
}

// appendStatus appends the status of one version.
func appendStatus(dst []byte, version, state string) []byte {
	dst = tensorjson.AppendString(append(dst, `{"version":`...), version)
	dst = append(append(dst, `,"state":"`...), state...)
	return append(dst, `","status":{"error_code":"OK","error_message":""}}`...)
}

// metadata serves GET …/metadata: the one signature that each model has.
func (s *service) metadata(x dialect.Exchange) {
	name, version, _ := address(x)
	n, err := s.path.Named(name, version)
	if err != nil {
		dialect.Fail(x, Dialect{}, NotFound(err, name, version))
		return
	}
	var a dialect.Answer
	a.Reset(200)
	a.Body = tensorjson.AppendString(append(a.Body, `{"model_spec":{"name":`...), n.Name)
	a.Body = append(a.Body, `,"signature_name":"","version":`...)
	if version = n.Model.ID.Version; n.Function != nil {
		version = "" // functions have none
	}
	a.Body = tensorjson.AppendString(a.Body, version)
	a.Body = append(a.Body, `},"metadata":{"signature_def":{"signature_def":{"`+Signature+`":{"inputs":{`...)
	a.Body = appendSpecs(a.Body, n.Model.Signature.Inputs)
	a.Body = append(a.Body, `},"outputs":{`...)
	a.Body = appendSpecs(a.Body, n.Model.Signature.Outputs)
	a.Body = append(a.Body, `},"method_name":"tensorflow/serving/predict"}}}}}`...)
	x.Answer(&a)
}

func appendSpecs(dst []byte, specs []api.TensorSpec) []byte {
	for i := range specs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = tensorjson.AppendString(dst, specs[i].Name)
		dst = append(append(dst, `:{"dtype":"`...), dtypes[specs[i].DType]...)
		dst = append(dst, `","tensor_shape":{"dim":[{"size":"-1","name":""}`...)
		for _, d := range specs[i].Shape {
			dst = strconv.AppendInt(append(dst, `,{"size":"`...), d, 10)
			dst = append(dst, `","name":""}`...)
		}
		dst = tensorjson.AppendString(append(dst, `],"unknown_rank":false},"name":`...), specs[i].Name+":0")
		dst = append(dst, '}')
	}
	return dst
}
