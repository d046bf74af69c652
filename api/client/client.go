package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Config configures a client.
type Config struct {
	// Address is that of the function port: host:port, or a URL. Empty: that in the environment variable XEBEC_SERVER, or else this machine's
	// port 1337.
	Address string
	// HTTP sends the requests. Nil: a client of its own, whose connections are kept.
	HTTP *http.Client
	// Header has fields that each request gets, for example a proxy's token.
	Header http.Header
	Retry  Retry
}

// Client calls functions of one gateway.
type Client struct {
	address string
	http    *http.Client
	header  http.Header
	budget  *budget
	pause   func(ctx context.Context, d time.Duration) error // that of a test does not wait
}

// New makes a client. It opens no connection.
func New(cfg Config) (*Client, error) {
	address := cmp.Or(cfg.Address, os.Getenv("XEBEC_SERVER"), "127.0.0.1:1337")
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return nil, fmt.Errorf("address %q: expected host:port, or a URL that begins with http:// or https://", address)
	}
	c := &Client{address: strings.TrimRight(address, "/"), http: cfg.HTTP, header: cfg.Header.Clone(), budget: newBudget(cfg.Retry), pause: pause}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 64
		c.http = &http.Client{Transport: t}
	}
	return c, nil
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call is what a request may say beside its input. Nil means nothing.
type Call struct {
	// Context is the user or session that the query is for.
	Context string
	// Models are the candidates that may be asked, name or name@version; Version restricts them to a version.
	Models  []string
	Version string
	// MinConfidence replaces that of the function.
	MinConfidence *float64
	// Parameters are for models that ask for them: a JSON object.
	Parameters any
	// Salt is a part of the key in the prediction cache.
	Salt string
	// TTL is how long a query is evaluated for the cache after its caller was answered.
	TTL time.Duration
}

// members are the options that stand in the body.
func (o *Call) members() map[string]any {
	m := map[string]any{}
	if o == nil {
		return m
	}
	if len(o.Models) > 0 {
		m["models"] = o.Models
	}
	if o.Version != "" {
		m["version"] = o.Version
	}
	if o.MinConfidence != nil {
		m["min_confidence"] = *o.MinConfidence
	}
	if o.Parameters != nil {
		m["parameters"] = o.Parameters
	}
	if o.Salt != "" {
		m["salt"] = o.Salt
	}
	if o.TTL > 0 {
		m["ttl_ms"] = float64(o.TTL) / float64(time.Millisecond)
	}
	return m
}

func (o *Call) context() string {
	if o == nil {
		return ""
	}
	return o.Context
}

// Prediction is the answer to one query.
type Prediction struct {
	QueryID uint64 `json:"query_id"`
	// Output is the JSON of the output, or of an object of several; Decode reads it.
	Output json.RawMessage `json:"output"`
	// Raw is the output's bytes, from PredictRaw.
	Raw []byte `json:"-"`
	// Default says that the output is the function's default, and DefaultExplanation why.
	Default            bool     `json:"default"`
	DefaultExplanation string   `json:"default_explanation"`
	Confidence         float64  `json:"confidence"`
	Models             []string `json:"models"` // name@version
	Late               []string `json:"late"`
	Failed             []string `json:"failed"`
	Dropped            []string `json:"dropped"`
}

// Decode reads the output into v, as [json.Unmarshal] does. Outputs of bytes are read into [Bytes].
func (p *Prediction) Decode(v any) error { return json.Unmarshal(p.Output, v) }

// Bytes are an input or an output of bytes, which JSON has as {"b64": "…"}.
type Bytes []byte

type boxed struct {
	B64 []byte `json:"b64"`
}

// MarshalJSON writes {"b64": "…"}.
func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(boxed{append([]byte{}, b...)}) }

// UnmarshalJSON reads {"b64": "…"}.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	var v struct{ B64 *[]byte }
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if v.B64 == nil {
		return errors.New(`expected an object with the member "b64"`)
	}
	*b = *v.B64
	return nil
}

// Predict asks for one prediction. The input is what [json.Marshal] can write: a number, a string, [Bytes], nested slices, or a map of these.
func (c *Client) Predict(ctx context.Context, function string, input any, call *Call) (*Prediction, error) {
	m := call.members()
	m["input"] = input
	r, err := newRequest(function, "predict", m, call.context())
	if err != nil {
		return nil, err
	}
	var p Prediction
	if err := c.ask(ctx, r, &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// PredictRaw sends the bytes of a single input: little-endian, row-major numbers, or what an input of bytes or a string is. The answer is in
// Raw if the function has one output of a fixed size, or of bytes or a string. Of call, only Context can be said.
func (c *Client) PredictRaw(ctx context.Context, function string, input []byte, call *Call) (*Prediction, error) {
	if len(call.members()) > 0 {
		return nil, errors.New("a raw request can say its context, and nothing else: use Predict")
	}
	r, err := newRequest(function, "predict", nil, call.context())
	if err != nil {
		return nil, err
	}
	r.body = input
	r.header.Set("Content-Type", octets)
	r.header.Set("Accept", octets)
	header, body, err := c.read(ctx, r)
	if err != nil {
		return nil, err
	}
	return rawPrediction(header, body)
}

func rawPrediction(h http.Header, body []byte) (*Prediction, error) {
	p := &Prediction{Raw: body, Default: h.Get("Xebec-Default") == "true", DefaultExplanation: h.Get("Xebec-Default-Explanation")}
	var err error
	if p.QueryID, err = strconv.ParseUint(h.Get("Xebec-Query-Id"), 10, 64); err != nil {
		return nil, fmt.Errorf("the answer is not one of a gateway: its header Xebec-Query-Id is %q", h.Get("Xebec-Query-Id"))
	}
	p.Confidence, _ = strconv.ParseFloat(h.Get("Xebec-Confidence"), 64)
	for name, list := range map[string]*[]string{"Xebec-Models": &p.Models, "Xebec-Late": &p.Late, "Xebec-Failed": &p.Failed, "Xebec-Dropped": &p.Dropped} {
		if v := h.Get(name); v != "" {
			*list = strings.Split(v, ",")
		}
	}
	return p, nil
}

// Result is the answer to one query of a batch, or its error.
type Result struct {
	Prediction
	Err *Error // nil: there is a prediction
}

// UnmarshalJSON reads one element of batch_predictions.
func (r *Result) UnmarshalJSON(text []byte) error {
	var failed struct {
		errorBody
		QueryID uint64 `json:"query_id"`
	}
	if err := json.Unmarshal(text, &failed); err != nil {
		return err
	}
	if failed.Code != "" {
		r.QueryID, r.Err = failed.QueryID, failed.error(0)
		return nil
	}
	return json.Unmarshal(text, &r.Prediction)
}

// PredictBatch asks for one prediction for each element of inputs, a slice, in one request. The error is that of the request; queries that
// failed beside others that did not have one of their own.
func (c *Client) PredictBatch(ctx context.Context, function string, inputs any, call *Call) ([]Result, error) {
	m := call.members()
	m["input_batch"] = inputs
	r, err := newRequest(function, "predict", m, call.context())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Results []Result `json:"batch_predictions"`
	}
	if err := c.ask(ctx, r, &answer); err != nil {
		return nil, err
	}
	return answer.Results, nil
}

// Feedback says how good an answer was: of a query, by its QueryID or by its Input, one of Label, Correct and Loss.
type Feedback struct {
	QueryID uint64   `json:"query_id,omitempty"`
	Input   any      `json:"input,omitempty"`
	Label   any      `json:"label,omitempty"`
	Correct *bool    `json:"correct,omitempty"`
	Loss    *float64 `json:"loss,omitempty"`
	Context string   `json:"context,omitempty"`
}

// FeedbackResult is what became of a feedback: counted, counted_in_part, pending, duplicate, nothing_to_learn, late, unknown or busy.
type FeedbackResult struct {
	QueryID uint64 `json:"query_id"`
	Status  string `json:"status"`
	Cause   string `json:"cause"`
}

// Feedback sends one feedback.
func (c *Client) Feedback(ctx context.Context, function string, f Feedback) (*FeedbackResult, error) {
	r, err := newRequest(function, "feedback", f, "")
	if err != nil {
		return nil, err
	}
	r.once = f.QueryID == 0
	var result FeedbackResult
	if err := c.ask(ctx, r, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

// FeedbackBatch sends many feedbacks in one request.
func (c *Client) FeedbackBatch(ctx context.Context, function string, all []Feedback) ([]FeedbackResult, error) {
	r, err := newRequest(function, "feedback", map[string]any{"feedback_batch": all}, "")
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		r.once = r.once || f.QueryID == 0
	}
	var answer struct {
		Results []FeedbackResult `json:"feedback_results"`
	}
	if err := c.ask(ctx, r, &answer); err != nil {
		return nil, err
	}
	return answer.Results, nil
}

// Description is what a function takes and answers.
type Description struct {
	Function  string          `json:"function"`
	Models    []string        `json:"models"`
	SLOMillis float64         `json:"slo_ms"`
	Streams   bool            `json:"streams"`
	Default   json.RawMessage `json:"default"` // nil: none
	Label     string          `json:"label"`
	Inputs    []Tensor        `json:"inputs"`
	Outputs   []Tensor        `json:"outputs"`
	// Input and Output are JSON Schemas.
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	// Raw says whether PredictRaw can send the input, and get the output.
	Raw struct {
		Input  bool `json:"input"`
		Output bool `json:"output"`
	} `json:"raw"`
	Example json.RawMessage `json:"example"` // a body for predict; nil if it would be long
}

// Tensor is an input or an output. A dimension of -1 is any size.
type Tensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Media string  `json:"media"`
}

// Describe describes a function.
func (c *Client) Describe(ctx context.Context, function string) (*Description, error) {
	r, err := newRequest(function, "", nil, "")
	if err != nil {
		return nil, err
	}
	r.method, r.noSLO = http.MethodGet, true
	var d Description
	if err := c.ask(ctx, r, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Functions lists the names of the gateway's functions, at most 1,000.
func (c *Client) Functions(ctx context.Context) ([]string, error) {
	var answer struct {
		Functions []string `json:"functions"`
	}
	r := &request{method: http.MethodGet, path: "/docs/functions", header: http.Header{}, noSLO: true}
	if err := c.ask(ctx, r, &answer); err != nil {
		return nil, err
	}
	return answer.Functions, nil
}

// ask sends a request and reads the JSON of the answer into v.
func (c *Client) ask(ctx context.Context, r *request, v any) error {
	_, body, err := c.read(ctx, r)
	if err != nil {
		return err
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return fmt.Errorf("the answer of %s is not one of a gateway: %w", r.path, err)
	}
	return nil
}
