package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"

	"github.com/xebec-serving/xebec/api"
)

const (
	// DefaultLogLines fills a screen or two.
	DefaultLogLines = 100
	// MaxLogLines is the number of lines that are kept for a model version.
	MaxLogLines = 1000
	// MaxFollowers bounds the connections that follow logs: enough for each terminal of a large team.
	MaxFollowers = 32 //xebec:limit connections that follow logs
)

// Content types of an answer with logs: one JSON object a line, or text.
const (
	ndjson   = "application/x-ndjson"
	textLogs = "text/plain; charset=utf-8"
)

// logs streams: each line is sent before waiting for the next. Lines are JSON objects if the Accept header names
// application/x-ndjson, else text.
func (h *handlers) logs(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model", "lines", "follow", "version")
	if err != nil {
		return nil, err
	}
	q, err := logQuery(c, name)
	if err != nil {
		return nil, err
	}
	if c.IsHead() { // what GET would begin with
		if err = h.control.Logs(ctx, api.LogQuery{Model: q.Model, Version: q.Version}, func(api.LogLine) error { return nil }); err == nil {
			logHeader(c)
		}
		return nil, err
	}
	if q.Follow {
		if h.followers.Add(1) > MaxFollowers {
			h.followers.Add(-1)
			return nil, api.Errorf(api.Overloaded, "already %d connections follow logs: close one, or ask without follow", MaxFollowers)
		}
		defer h.followers.Add(-1)
	}
	s := &logStream{c: c, json: wantsJSON(c), flush: q.Follow}
	err = h.control.Logs(ctx, q, s.emit)
	switch {
	case err == nil:
		s.start() // no lines: an empty body
	case s.w == nil:
		return nil, err
	case !s.failed:
		s.fail(err)
	}
	return nil, nil
}

// inspect streams what a command in a model's directory writes. It changes nothing that is declared, and is audited because it runs code.
func (h *handlers) inspect(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	if err := rejectIfMatch(c, "an inspection changes nothing"); err != nil {
		return nil, err
	}
	var request struct {
		Dir     string   `json:"dir"`
		Command []string `json:"command"`
	}
	if err := jsonBody(c, &request, `{"dir": "/absolute/path", "command": ["python", "model.py"]}`); err != nil {
		return nil, err
	}
	dir, err := absolute("dir", request.Dir)
	if err != nil {
		return nil, err
	}
	spec := api.RunSpec{Command: request.Command}
	if err := spec.Check(); err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%w", err)
	}
	setSubject(c, false, dir)
	s := &logStream{c: c, json: wantsJSON(c), flush: true}
	err = h.control.Inspect(ctx, dir, request.Command, s.emit)
	if err != nil && s.w != nil && !s.failed {
		s.fail(err)
	}
	if s.w != nil {
		err = nil
	}
	return nil, err
}

func logQuery(c *app.RequestContext, model string) (api.LogQuery, error) {
	lq := api.LogQuery{Model: model, Lines: DefaultLogLines}
	q, err := query(c, "lines", "follow", "version")
	if err != nil {
		return lq, err
	}
	if lq.Follow, err = q.boolean("follow"); err != nil {
		return lq, err
	}
	if lines, given := q["lines"]; given {
		n, err := strconv.Atoi(lines)
		if err != nil || n < 0 || n > MaxLogLines {
			return lq, api.Errorf(api.InvalidArgument, "the query parameter lines=%.20q: expected 0 to %d", lines, MaxLogLines)
		}
		lq.Lines = n
	}
	if version, given := q["version"]; given {
		if err := api.CheckVersion(version); err != nil {
			return lq, api.Errorf(api.InvalidArgument, "%w", err)
		}
		lq.Version = version
	}
	return lq, nil
}

// logStream is an answer that starts with its first line. Until then an error can still be a status.
type logStream struct {
	c      *app.RequestContext
	w      network.ExtWriter
	json   bool
	flush  bool
	failed bool
	buf    bytes.Buffer
}

func wantsJSON(c *app.RequestContext) bool {
	return strings.Contains(string(c.Request.Header.Peek("Accept")), ndjson)
}

func logHeader(c *app.RequestContext) {
	c.SetStatusCode(200)
	c.Response.Header.Set("Cache-Control", "no-store")
	c.Response.Header.Set("X-Content-Type-Options", "nosniff")
	c.Response.Header.SetContentType(textLogs)
	if wantsJSON(c) {
		c.Response.Header.SetContentType(ndjson)
	}
}

func (s *logStream) start() {
	if s.w != nil {
		return
	}
	logHeader(s.c)
	s.w = resp.NewChunkedBodyWriter(&s.c.Response, s.c.GetWriter())
	s.c.Response.HijackWriter(s.w)
}

func (s *logStream) emit(line api.LogLine) error {
	s.start()
	s.buf.Reset()
	if s.json {
		if err := json.NewEncoder(&s.buf).Encode(line); err != nil {
			return err
		}
	} else {
		s.buf.WriteString(line.String() + "\n")
	}
	return s.send()
}

// fail ends a stream that has started: its status has already been sent.
func (s *logStream) fail(err error) {
	s.buf.Reset()
	if s.json {
		_ = json.NewEncoder(&s.buf).Encode(api.ErrorBody{Error: api.ErrorInfo{Code: api.Internal.String(), Message: err.Error()}}) // two strings, into memory: cannot fail
	} else {
		s.buf.WriteString("error: " + err.Error() + "\n")
	}
	_ = s.send() // if this fails, the client has disconnected
}

func (s *logStream) send() error {
	_, err := s.w.Write(s.buf.Bytes())
	if err == nil && s.flush {
		err = s.w.Flush()
	}
	s.failed = s.failed || err != nil
	return err
}
