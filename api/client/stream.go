package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// MaxLineBytes bounds one output of a stream.
const MaxLineBytes = 64 << 20 //xebec:limit one output of a stream that the Go client reads

// Stream is an answer whose outputs come one by one. It is for one goroutine.
type Stream struct {
	// QueryID names the query for feedback, which is about the first output. Default says that the only output is the function's default; both
	// are known when Next has returned true for the first time.
	QueryID uint64
	Default bool

	ctx    context.Context
	body   io.ReadCloser
	lines  *bufio.Reader
	whole  bool // the answer is one JSON document
	output json.RawMessage
	err    error
	ended  bool
}

// Stream asks a model that answers in a stream. Of a function whose model answers at once, or that answers its default, the stream has one output.
// The caller closes the stream. The context bounds all of it; its deadline is the objective for the first output.
func (c *Client) Stream(ctx context.Context, function string, input any, call *Call) (*Stream, error) {
	m := call.members()
	m["input"] = input
	r, err := newRequest(function, "predict", m, call.context())
	if err != nil {
		return nil, err
	}
	r.header.Set("Accept", "application/jsonl")
	answer, err := c.send(ctx, r) //nolint:bodyclose // the stream closes it
	if err != nil {
		return nil, err
	}
	return newStream(ctx, answer), nil
}

func newStream(ctx context.Context, answer *http.Response) *Stream {
	s := &Stream{ctx: ctx, body: answer.Body, lines: bufio.NewReader(answer.Body), whole: !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/jsonl")}
	s.QueryID, _ = strconv.ParseUint(answer.Header.Get("Xebec-Query-Id"), 10, 64)
	return s
}

// Next waits for the next output and reports whether there is one. After the last one, and after an error, it returns false.
func (s *Stream) Next() bool {
	if s.ended {
		return false
	}
	more, err := s.next()
	if !more {
		s.ended, s.err, s.output = true, err, nil
		s.body.Close()
	}
	return more
}

// Output is the JSON of the output that Next has found. Decode reads it into a value.
func (s *Stream) Output() json.RawMessage { return s.output }

// Decode reads the output that Next has found into v.
func (s *Stream) Decode(v any) error { return json.Unmarshal(s.output, v) }

// Err is why the stream has ended: nil if it has come to its end.
func (s *Stream) Err() error { return s.err }

// Close ends the stream. The model gets no further turn.
func (s *Stream) Close() error {
	s.ended = true
	return s.body.Close()
}

func (s *Stream) next() (bool, error) {
	if s.whole {
		if s.output != nil {
			return false, nil
		}
		body, err := readAll(s.lines)
		if err != nil {
			return false, s.broken(err)
		}
		var p Prediction
		if err := json.Unmarshal(body, &p); err != nil {
			return false, fmt.Errorf("the answer is not one of a gateway: %w", err)
		}
		s.QueryID, s.Default, s.output = p.QueryID, p.Default, p.Output
		return true, nil
	}
	line, err := s.line()
	if err != nil {
		return false, err
	}
	var said struct {
		errorBody
		Output json.RawMessage `json:"output"`
		End    bool            `json:"end"`
	}
	switch err := json.Unmarshal(line, &said); {
	case err != nil:
		return false, fmt.Errorf("a line of the stream is not one of a gateway: %w", err)
	case said.Code != "":
		return false, said.error(0)
	case said.End:
		return false, nil
	case said.Output == nil:
		return false, errors.New("a line of the stream is not one of a gateway: it has no output")
	}
	s.output = said.Output
	return true, nil
}

func (s *Stream) line() ([]byte, error) {
	var line []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > MaxLineBytes:
			return nil, &Error{Code: StreamBroken, Message: fmt.Sprintf("an output has more than %d bytes", MaxLineBytes)}
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, s.broken(err)
		}
	}
}

func (s *Stream) broken(err error) error {
	if ended := s.ctx.Err(); ended != nil {
		return fmt.Errorf("the stream was not over when the context ended: %w", ended)
	}
	return &Error{Code: StreamBroken, Message: "the stream stopped before its end: " + err.Error(), cause: err}
}
