package http

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
)

// defaultContentType is Hertz's content type for answers that name none.
const defaultContentType = "text/plain; charset=utf-8"

// appendAnswer appends a call's answer as it is written to the connection.
func (s *Server) appendAnswer(b []byte, call *dialect.Call) []byte {
	return append(s.appendHead(b, call, coding.Identity, nil), call.Answer.Body...)
}

// appendHead appends the head of an answer with the compressed body; nil: the body stays as it is.
func (s *Server) appendHead(b []byte, call *dialect.Call, c coding.Coding, small *coding.Body) []byte {
	a, body := &call.Answer, call.Answer.Body
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.Status), 10)
	b = append(b, ' ')
	b = append(b, statusText(a.Status)...)
	b = append(b, "\r\n"...)
	b = append(b, *s.date.Load()...)
	if a.ContentType != "" {
		b = append(b, a.ContentType...)
	} else {
		b = append(b, defaultContentType...)
	}
	if len(body) >= coding.CompressFrom && call.Flow() == nil {
		b = append(b, "\r\nVary: Accept-Encoding"...)
	}
	if small != nil {
		body = small.Bytes
		b = append(b, "\r\nContent-Encoding: "...)
		b = append(b, c.String()...)
	}
	if call.Flow() != nil {
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
	} else {
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
	}
	b = append(b, "\r\nX-Request-Id: "...)
	b = append(b, call.Identity.RequestID...)
	if len(call.Identity.TraceParent) > 0 {
		b = append(b, "\r\nTraceparent: "...)
		b = append(b, call.Identity.TraceParent...)
		if len(call.Identity.TraceState) > 0 {
			b = append(b, "\r\nTracestate: "...)
			b = append(b, call.Identity.TraceState...)
		}
	}
	for i := range a.Fields {
		b = append(b, "\r\n"...)
		b = append(b, a.Fields[i].Name...)
		b = append(b, ": "...)
		b = append(b, a.Fields[i].Value...)
	}
	for i := range a.Transport {
		b = append(b, "\r\n"...)
		b = append(b, a.Transport[i].Name...)
		b = append(b, ": "...)
		b = append(b, a.Transport[i].Value...)
	}
	return append(b, "\r\n\r\n"...)
}

// encoded reports whether the dialect has chosen a content coding itself.
func encoded(a *dialect.Answer) bool {
	return slices.ContainsFunc(a.Fields, func(f dialect.Field) bool { return f.Name == headerContentEncoding })
}

func statusText(status int) string {
	if status == 499 {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}

// keepDate updates the Date header once a second instead of for each answer.
func (s *Server) keepDate(stop <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			s.stampDate(now)
		case <-stop:
			return
		}
	}
}

func (s *Server) stampDate(now time.Time) {
	b := []byte("Server: xebec\r\nDate: " + now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\nContent-Type: ")
	s.date.Store(&b)
}
