package calls

import (
	"bytes"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/worker/wire"
)

// Dialect is the dialect of lines. It needs no configuration.
type Dialect struct{}

// Header fields of a call, in their canonical form.
const (
	headerSignature  = "Xebec-Signature"  // the digest of the signature that the block has
	headerQueries    = "Xebec-Queries"    // how many queries the block has
	headerFor        = "Xebec-For"        // BATCH or BATCH.QUERY: what the caller evaluates
	headerContext    = "Xebec-Context"    // instead of that of the query
	headerParameters = "Xebec-Parameters" // a JSON object
)

// Routes are those of calls and of signatures.
func (Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{path: p}
	s.pool.New = func() any {
		c := &call{service: s}
		c.Init(p, c)
		return c
	}
	return []dialect.Route{
		{Method: "POST", Path: "/call/{callee}", Serve: s.serve, NonBlocking: true},
		{Method: "GET", Path: "/call/{callee}", Serve: s.signature},
	}
}

// AppendError appends a JSON object with the error's text and code.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte {
	dst = append(dst, `{"error":`...)
	dst = tensorjson.AppendString(dst, e.Message)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, e.Code.String()...)
	dst = append(dst, `","request_id":`...)
	return append(tensorjson.AppendString(dst, e.RequestID), '}')
}

type service struct {
	path *query.Path
	pool sync.Pool
}

// call is the state of one call.
type call struct {
	dialect.Call
	service *service
	origin  api.Origin
	digest  uint64 // of the signature that the schemas have; 0: none
	inputs  *wire.Schema
	outputs *wire.Schema
	reader  wire.Reader
	json    tensorjson.Reader
}

// Released returns the call to its pool.
func (c *call) Released() { c.service.pool.Put(c) }

// serve serves POST /call/{callee}.
func (s *service) serve(x dialect.Exchange) {
	caller, err := admitted(x)
	if err != nil {
		dialect.Fail(x, Dialect{}, err)
		return
	}
	c := s.pool.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	if err := c.address(x, caller); err != nil {
		c.Drop()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	if err := c.read(x); err != nil {
		c.Refuse()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	x.Submit(&c.Call)
}

// signature serves GET /call/{callee}.
func (s *service) signature(x dialect.Exchange) {
	if _, err := admitted(x); err != nil {
		dialect.Fail(x, Dialect{}, err)
		return
	}
	c := s.pool.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	err := c.ask(x.Param("callee"))
	if err != nil {
		c.Drop()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	sig := c.Model().Signature
	c.Drop()
	x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: appendSignature(nil, &sig)})
}

// admitted returns the caller of an exchange, if it may call the callee.
func admitted(x dialect.Exchange) (dialect.Caller, error) {
	line, ok := x.(dialect.Line)
	var caller dialect.Caller
	if ok {
		caller = line.Caller()
	}
	if caller == nil {
		return nil, api.Errorf(api.Forbidden, "only models make calls here: use POST /{function}/predict")
	}
	if callee := x.Param("callee"); !caller.May(callee) {
		return nil, api.Errorf(api.Forbidden, "%s calls %.63q, which its manifest does not declare: add it to calls", caller.Model(), callee)
	}
	return caller, nil
}

// address finds the callee, and what the call belongs to.
func (c *call) address(x dialect.Exchange, caller dialect.Caller) error {
	batch, i, err := parseFor(x.Header(headerFor))
	if err != nil {
		return err
	}
	caller.Origin(batch, i, &c.origin)
	if err := c.ask(x.Param("callee")); err != nil {
		return err
	}
	if err := c.Continue(caller.Model(), &c.origin); err != nil {
		return err
	}
	if len(c.origin.Call.RequestID) == 0 {
		c.origin.Call.RequestID = append(c.origin.Call.RequestID, x.Header("X-Request-Id")...)
	}
	c.origin.Call.Cause = api.Cause{Replica: caller, Batch: batch, Query: i}
	x.(dialect.Line).Identify(&c.origin.Call)
	slo, err := dialect.SLO(x)
	if slo > 0 {
		c.Within(slo)
	}
	return err
}

// ask addresses the function, or the model if there is no such function.
func (c *call) ask(callee string) error {
	err := c.AskFunction(callee)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.NotFound {
		if err = c.AskModel(callee, ""); err != nil {
			return api.Errorf(api.NotFound, "no function or model %.63q", callee)
		}
	}
	return err
}

// parseFor reads BATCH or BATCH.QUERY; nothing is batch 0, which there never is.
func parseFor(v []byte) (batch uint64, i int, err error) {
	if len(v) == 0 {
		return 0, -1, nil
	}
	number, index, some := bytes.Cut(v, []byte("."))
	batch, err = strconv.ParseUint(string(number), 10, 64)
	if i = -1; err == nil && some {
		var n uint64
		n, err = strconv.ParseUint(string(index), 10, 31)
		i = int(n)
	}
	if err != nil {
		return 0, 0, api.Errorf(api.InvalidArgument, "header %s: %.63q: expected the number of a batch, or that and the number of a query: 17.2", headerFor, v)
	}
	return batch, i, nil
}

// read reads the block and the options.
func (c *call) read(x dialect.Exchange) error {
	sig := &c.Model().Signature
	digest := digestOf(sig)
	if v := x.Header(headerSignature); string(v) != strconv.FormatUint(digest, 16) {
		return api.Errorf(api.Conflict, "header %s: %.63q is not the digest of the signature, which may have changed: read it again", headerSignature, v)
	}
	n, err := strconv.ParseUint(string(x.Header(headerQueries)), 10, 31)
	if err != nil || n == 0 {
		return api.Errorf(api.InvalidArgument, "header %s: %.63q: expected the number of queries in the block", headerQueries, x.Header(headerQueries))
	}
	if most := c.service.path.MaxBatch(); n > uint64(most) {
		return api.Errorf(api.InvalidArgument, "%d inputs in one call: expected at most %d", n, most)
	}
	if c.digest != digest {
		c.digest, c.inputs, c.outputs = digest, wire.NewSchema(sig.Inputs), wire.NewSchema(sig.Outputs)
	}
	if err := c.readBlock(x.Body(), int(n)); err != nil {
		return api.Errorf(api.InvalidArgument, "the block: %w", err)
	}
	return c.readOptions(x)
}

func (c *call) readBlock(block []byte, n int) error {
	if err := c.inputs.Open(&c.reader, block, n); err != nil {
		return err
	}
	for i := range n {
		values, err := c.Next()
		if err != nil {
			return err
		}
		for s := range values {
			v := &values[s]
			data, _, dims, err := c.reader.AppendItem(v.Data[:0], i, s, v.Dims[:0])
			if err != nil {
				return err
			}
			v.Data, v.Dims = data, dims
		}
	}
	return nil
}

func (c *call) readOptions(x dialect.Exchange) error {
	if p := x.Header(headerParameters); len(p) > 0 {
		c.json.Reset(p)
		object, err := c.json.RawObject()
		if err == nil {
			err = c.json.End()
		}
		if err != nil {
			return api.Errorf(api.InvalidArgument, "header %s: %w", headerParameters, err)
		}
		if err := c.SetParameters(object); err != nil {
			return err
		}
	}
	context := x.Header(headerContext)
	if len(context) == 0 {
		context = c.origin.Context
	}
	return c.SetContext(context, nil)
}

// digestOf is a number that differs for signatures with different blocks. It is never 0.
func digestOf(sig *api.Signature) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(appendSpecs(appendSpecs(nil, sig.Inputs), sig.Outputs)) // never fails
	return h.Sum64() | 1
}
